"""Damage every kind of file that ptrun writes or reads, and see what the commands make of it.

    python benchmarks/drill.py [--places 200] [--seed 1] [--only KIND ...]

Runs on the pocket world are made once. Then each kind of file is damaged at random places: three of
four times one bit is flipped, else the file is cut. A command that reads the file must give the
answer of the undamaged file, heal the damage with a word, or refuse and name the file. Another
answer without a word is `wrong`, an exception that reaches the shell is a `traceback`, and a run
that is neither finished nor refused is `lost`: all three must be 0.

Writes results/faults.{md,json}.
"""

import argparse
import contextlib
import io
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from ptrun import cli
from ptrun.backbone.files import SHIPPED
from ptrun.runs.store import RunStore

RESULTS = Path(__file__).parent / "results"
ENDS = ("same", "healed", "refused", "unclear", "traceback", "lost", "wrong")
SECONDS = 120  # after which a command counts as lost
RUN = ["task=pocket_sentiment", "method=prompt_tuning", "method.length=4", "setting=few_shot_32"]
RUN += ["train.max_steps=4", "train.eval_every=2", "train.batch_size=8"]
ROWS = "sentence\na fine film\na dull plot and a bad end\nthe cast was good\n"


@dataclass(frozen=True)
class Called:
    """How a command ended: its exit code, or `traceback` or `hang`; and what it printed."""

    code: int | str
    out: str
    err: str


def called(*arguments: str) -> Called:
    """Call ptrun in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), limited():
        try:
            with patch.object(sys, "argv", ["ptrun", *arguments]):
                cli.main()
            code: int | str = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
            if code > 128:  # a signal is for the drill
                raise
        except TimeoutError:
            code = "hang"
        except Exception:
            traceback.print_exc()
            code = "traceback"
    return Called(code, out.getvalue(), err.getvalue())


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Raise TimeoutError after some seconds."""

    def late(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class World:
    """The undamaged files: a finished run, its interrupted copy, its tokens and its backbone.

    Args:
        root: a folder of its own.
    """

    def __init__(self, root: Path):
        self.root = root
        self.rows = root / "rows.csv"
        self.rows.write_text(ROWS)
        self.model = shutil.copytree(SHIPPED / "pocket_bert", root / "model")
        self.run = [*RUN, f"backbone.path={self.model}"]
        self._call(*self.run, "keep=all", f"outputs={root / 'clean'}")
        (file,) = (root / "clean").rglob("result.json")
        self.finished = file.parent
        with patch.object(RunStore, "log", _until(3)), contextlib.suppress(KeyboardInterrupt):
            called(*self.run, f"outputs={root / 'half'}")
        self.interrupted = next((root / "half").rglob("state.safetensors")).parent
        self.tokens = next((root / "clean" / ".tokens").glob("*.arrow"))

    def _call(self, *arguments: str) -> None:
        done = called(*arguments)
        assert done.code == 0, done.err

    def fresh(self, folder: Path) -> Path:
        """Return a copy of a run folder in a folder of outputs of its own."""
        place = self.root / "now"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(folder, place / "runs" / folder.name)
        return place / "runs" / folder.name


def _until(step: int) -> Callable[..., None]:
    log = RunStore.log

    def stopping(self: RunStore, row: dict) -> None:
        log(self, row)
        if row.get("step") == step:
            raise KeyboardInterrupt

    return stopping


def outcome(folder: Path) -> str:
    """Return what a finished run left: metrics, journal, and the bytes of its prompt."""
    try:
        metrics = json.loads((folder / "result.json").read_text())["metrics"]
        prompt = (folder / "prompt.safetensors").read_bytes().hex()
        return json.dumps(metrics) + (folder / "metrics.jsonl").read_text() + prompt
    except FileNotFoundError:
        return "nothing"


Case = tuple[Path, Callable[[], Called], Callable[[Called], str]]
"""The file to damage, the command that reads it, and what is compared of its end."""


def resumed(world: World, name: str) -> Case:
    """Resume an interrupted run."""
    folder = world.fresh(world.interrupted)
    line = [*world.run, f"outputs={folder.parents[1]}"]
    return folder / name, lambda: called(*line), lambda _: outcome(folder)


def predicted(world: World, name: str) -> Case:
    """Predict rows with a finished run."""
    folder = world.fresh(world.finished)
    line = ["predict", str(folder), "--input", str(world.rows)]
    return folder / name, lambda: called(*line), lambda done: done.out


def followed(world: World, name: str) -> Case:
    """Start from the prompt of a finished run; two steps show from which."""
    folder = world.fresh(world.finished)
    line = [*world.run, f"start=run:{folder}", "train.max_steps=1", f"outputs={world.root / 'new'}"]

    def run() -> Called:
        shutil.rmtree(world.root / "new", ignore_errors=True)
        return called(*line)

    return folder / name, run, lambda _: _newest(world.root / "new")


def _newest(root: Path) -> str:
    return "".join(outcome(file.parent) for file in root.rglob("result.json"))


def reported(world: World, name: str) -> Case:
    """Report a folder with a finished run."""
    folder = world.fresh(world.finished)
    line = ["report", str(folder.parents[1])]
    return folder / name, lambda: called(*line), lambda done: done.out


def compared(world: World, name: str) -> Case:
    """Compare a finished run with its undamaged original."""
    folder = world.fresh(world.finished)
    line = ["diff", str(world.finished), str(folder)]
    return folder / name, lambda: called(*line), lambda done: done.out


def trained(world: World, _: str) -> Case:
    """Train anew with a cache of tokens."""
    place = world.root / "now"
    shutil.rmtree(place, ignore_errors=True)
    tokens = shutil.copytree(world.tokens.parent, place / ".tokens") / world.tokens.name
    line = [*world.run, f"outputs={place}"]
    return tokens, lambda: called(*line), lambda _: _newest(place)


def modelled(world: World, name: str) -> Case:
    """Predict with a backbone whose files are damaged."""
    shutil.rmtree(world.root / "odd_model", ignore_errors=True)
    model = shutil.copytree(world.model, world.root / "odd_model")
    line = ["predict", str(world.finished), "--input", str(world.rows), f"backbone.path={model}"]
    return model / name, lambda: called(*line), lambda done: done.out


KINDS: dict[str, tuple[Callable[[World, str], Case], str]] = {
    "state, resume": (resumed, "state.safetensors"),
    "journal, resume": (resumed, "metrics.jsonl"),
    "prompt, predict": (predicted, "prompt.safetensors"),
    "prompt, start=run:": (followed, "prompt.safetensors"),
    "result, predict": (predicted, "result.json"),
    "result, report": (reported, "result.json"),
    "run.yaml, predict": (predicted, "run.yaml"),
    "journal, diff": (compared, "metrics.jsonl"),
    "predictions, diff": (compared, "predictions.jsonl"),
    "tokens, train": (trained, ""),
    "weights, predict": (modelled, "model.safetensors"),
    "tokenizer, predict": (modelled, "tokenizer.json"),
    "tokenizer settings, predict": (modelled, "tokenizer_config.json"),
    "configuration, predict": (modelled, "config.json"),
}


def damage(file: Path, draw: random.Random) -> str:
    """Flip a bit of a file, or cut it; return what was done."""
    content = bytearray(file.read_bytes())
    place = draw.randrange(len(content))
    if draw.random() < 0.25:
        file.write_bytes(content[:place])
        return f"cut at {place}"
    bit = draw.randrange(8)
    content[place] ^= 1 << bit
    file.write_bytes(content)
    return f"bit {bit} of byte {place}"


def judged(done: Called, answer: str, expected: str, file: Path) -> str:
    """Return how a command ended. A file is named by its name or by that of its folder."""
    told = done.err + done.out
    named = file.name in told or file.parent.name in told
    if done.code == "traceback":
        return "traceback"
    if done.code == 0:
        warned = "damaged" in done.err and named
        return "same" if answer == expected else "healed" if warned else "wrong"
    if done.code != 1:
        return "lost"
    return "refused" if named else "unclear"


def drill(world: World, kind: str, places: int, seed: int) -> tuple[Counter, list[dict]]:
    """Damage a kind of file at random places; return counts, and the cases that must not be."""
    make, name = KINDS[kind]
    file, run, read = make(world, name)
    clean = run()
    assert clean.code == 0, clean.err
    expected, counts, bad = read(clean), Counter(), []
    draw = random.Random(f"{kind} {seed}")
    for _ in range(places):
        file, run, read = make(world, name)
        what = damage(file, draw)
        done = run()
        end = judged(done, read(done), expected, file)
        if end == "same" and "made again" in done.err:
            end = "healed"
        counts[end] += 1
        if end in ENDS[3:]:
            bad.append({"kind": kind, "what": what, "end": end, "said": done.err[-600:]})
    return counts, bad


def page(counts: dict[str, Counter], places: int) -> str:
    """Return the page of results."""
    lines = ["# Damaged files", "", __doc__.split("\n\n")[2].replace("\n", " "), ""]
    lines += [f"{places} places of each kind. `same`: the damage changes nothing that is read."]
    lines += ["`unclear`: refused without the name of the file.", ""]
    lines += [f"| file, command | {' | '.join(ENDS)} |", "|---" * (len(ENDS) + 1) + "|"]
    rows = {**counts, "all": sum(counts.values(), Counter())}
    lines += [f"| {kind} | {' | '.join(str(own[e]) for e in ENDS)} |" for kind, own in rows.items()]
    return "\n".join(lines) + "\n"


def write(counts: dict[str, Counter], bad: list[dict], places: int, seed: int) -> None:
    """Write the results."""
    (RESULTS / "faults.md").write_text(page(counts, places))
    content = {"places": places, "seed": seed, "bad": bad}
    content |= {"counts": {kind: dict(own) for kind, own in counts.items()}}
    (RESULTS / "faults.json").write_text(json.dumps(content, indent=1) + "\n")


def main() -> None:
    """Do the drill and write its results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--places", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", choices=KINDS, default=list(KINDS))
    given = parser.parse_args()
    counts, bad, home = {}, [], os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        world = World(Path(folder).resolve())
        for kind in given.only:
            counts[kind], own = drill(world, kind, given.places, given.seed)
            bad += own
            print(kind, dict(counts[kind]), flush=True)
        os.chdir(home)
    if given.only == list(KINDS):
        write(counts, bad, given.places, given.seed)
    for one in bad:
        print(json.dumps(one, indent=1), file=sys.stderr)
    sys.exit(1 if any(one["end"] in ("traceback", "lost", "wrong") for one in bad) else 0)


if __name__ == "__main__":
    main()
