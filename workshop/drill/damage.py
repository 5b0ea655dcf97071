"""Damage files at random places: three of four times one bit is flipped, else the file is cut.

A command that reads the file gives the answer of the undamaged file, heals the damage with a word,
or refuses and names the file.
"""

import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workshop.drill.ends import Ended, of_damage
from workshop.drill.warm import HAS_RANKS, Call, Called
from workshop.drill.works import SHARDS, WORKS, of_model, of_run, of_runs, of_search
from workshop.drill.world import World


@dataclass(frozen=True)
class Damage:
    """A file to damage, the command that reads it, and what is compared of its end.

    Args:
        file: the file.
        line: the arguments of the command.
        read: what is compared; the output if it is None.
        given: more of the call.
        before: done before the command.
    """

    file: Path
    line: list[str]
    read: Callable[[], str] | None = None
    given: Mapping[str, Any] = field(default_factory=dict)
    before: Callable[[], object] = lambda: None

    def do(self, world: World) -> tuple[Called, str]:
        """Return how the command ended, and its answer."""
        self.before()
        done = world.warm.run(Call(self.line, world.root, **self.given))
        return done, done.out if self.read is None else self.read()


LONGER = ("train.max_steps=24", "train.eval_every=8")
Make = Callable[[World, str], Damage]


def made_once(make: Callable[[World, Path], object]) -> Callable[[World], Path]:
    """Return a function that makes a folder once in a world, and returns a fresh copy."""
    name = make.__name__

    def copy(world: World) -> Path:
        kept = world.root / "kept" / name
        if not kept.exists():
            kept.mkdir(parents=True)
            make(world, kept)
        world.clear()
        return shutil.copytree(kept, world.now, dirs_exist_ok=True)

    return copy


def _halted(world: World, folder: Path) -> None:
    world.halted(folder, *world.table(), *LONGER, f"outputs={folder}")


def _halted_ranks(world: World, folder: Path) -> None:
    world.halted(folder, *WORKS["two-rank ZeRO-1"].line(world, folder))


def _halted_adapt(world: World, folder: Path) -> None:
    world.halted(folder, *WORKS["workshop.adapt"].line(world, folder))


def _labelled(world: World, folder: Path) -> None:
    world.done(*WORKS["labelling"].line(world, folder), set=SHARDS)
    for name in ("runs", ".tokens"):
        shutil.rmtree(folder / name, ignore_errors=True)


def _searched(world: World, folder: Path) -> None:
    world.done(*WORKS["search"].line(world, folder))


def _failed(world: World, folder: Path) -> None:
    done = world.call(*world.line, "train.lr=1e30", f"outputs={folder}")
    assert done.code == 1, done


def _trained(world: World, folder: Path) -> None:
    world.done(*world.line, f"outputs={folder}")


def _pretrained(world: World, folder: Path) -> None:
    world.done(*WORKS["PPT pre-training"].line(world, folder))
    shutil.rmtree(folder / "runs")


def _queued(world: World, folder: Path) -> None:
    from ptrun.sweeps import queue

    shutil.copytree(world.finished, folder / "runs" / world.finished.name)
    (folder / queue.FOLDER).mkdir()
    queue.record(folder, {"7_0": [folder / "runs" / "a"], "7_1": [folder / "runs" / "b"]})
    (folder / "squeue").write_text("#!/bin/sh\nprintf '7_0 RUNNING\\n7_1 PENDING\\n'\n")
    (folder / "squeue").chmod(0o755)


halted, halted_ranks, halted_adapt = map(made_once, (_halted, _halted_ranks, _halted_adapt))
labelled, searched, failed = map(made_once, (_labelled, _searched, _failed))
trained, pretrained, queued = map(made_once, (_trained, _pretrained, _queued))


def resumed(world: World, name: str) -> Damage:
    """Resume an interrupted run."""
    (state,) = halted(world).rglob("state.safetensors")
    line = [*world.table(), *LONGER, f"outputs={world.now}"]
    return Damage(state.with_name(name), line, lambda: of_run(state.parent))


def resumed_ranks(world: World, _: str) -> Damage:
    """Resume a run of two ranks, each with its part of the state."""
    parts = sorted(halted_ranks(world).rglob("state.step-*.safetensors"))
    line = WORKS["two-rank ZeRO-1"].line(world, world.now)
    return Damage(parts[-1], line, lambda: of_runs(world.now))


def resumed_adapt(world: World, name: str) -> Damage:
    """Resume an LM adaptation."""
    file = halted_adapt(world) / name
    return Damage(file, WORKS["workshop.adapt"].line(world, world.now), lambda: of_model(world.now))


def predicted(world: World, name: str) -> Damage:
    """Predict rows with a finished run."""
    folder = world.fresh(world.finished)
    return Damage(folder / name, ["predict", str(folder), "--input", f"{world.inputs}/rows.csv"])


def repeated(world: World, name: str) -> Damage:
    """Repeat a finished run from what it recorded."""
    folder = world.fresh(world.finished)
    line = ["rerun", str(folder), f"outputs={world.now}"]
    return Damage(folder / name, line, lambda: of_runs(world.now / "reruns"))


def followed(world: World, name: str) -> Damage:
    """Start from the prompt of a finished run; a step shows from which."""
    folder, new = world.fresh(world.finished), world.root / "new"
    line = [*world.line, f"start=run:{folder}", "train.max_steps=1", f"outputs={new}"]
    clear = lambda: shutil.rmtree(new, ignore_errors=True)  # noqa: E731
    return Damage(folder / name, line, lambda: of_runs(new), before=clear)


def started(world: World, name: str) -> Damage:
    """Start from a prompt that was pre-trained before."""
    (folder,) = (pretrained(world) / "pretraining").iterdir()
    line = WORKS["PPT pre-training"].line(world, world.now)
    return Damage(folder / name, line, lambda: of_runs(world.now / "runs"))


def reported(world: World, name: str) -> Damage:
    """Report a folder with a finished run."""
    folder = world.fresh(world.finished)
    return Damage(folder / name, ["report", str(world.now)])


def reported_failure(world: World, name: str) -> Damage:
    """Report a folder with a failed run."""
    (file,) = failed(world).rglob(name)
    return Damage(file, ["report", str(world.now)])


def compared(world: World, name: str) -> Damage:
    """Compare a finished run with its undamaged original."""
    folder = world.fresh(world.finished)
    return Damage(folder / name, ["diff", str(world.finished), str(folder)])


def learned(world: World, _: str) -> Damage:
    """Learn on lines that were labelled before."""
    file = sorted(labelled(world).glob(".labels/*/0*.arrow"))[2]
    line = WORKS["labelling"].line(world, world.now)
    return Damage(file, line, lambda: of_runs(world.now), {"set": SHARDS})


def searched_on(world: World, name: str) -> Damage:
    """Go on with a search whose trials have ended."""
    file = searched(world) / "runs" / name
    return Damage(file, WORKS["search"].line(world, world.now), lambda: of_search(world.now))


def listed(world: World, _: str) -> Damage:
    """Show the runs of jobs that are in the queue of a cluster."""
    (file,) = queued(world).glob(".jobs/*.json")
    path = {"PATH": f"{world.now}:/usr/bin:/bin"}
    return Damage(file, ["status", str(world.now)], given={"environment": path})


def owned(world: World, _: str) -> Damage:
    """Resume a run beside which a killed process left its name."""
    (state,) = halted(world).rglob("state.safetensors")
    (file,) = state.parent.parent.glob(".*.owner")
    line = [*world.table(), *LONGER, f"outputs={world.now}"]
    short = {"set": {"ptrun.folder.lease:SILENCE": 0.1}}
    return Damage(file, line, lambda: of_run(state.parent), short)


def hashed(world: World, _: str) -> Damage:
    """Predict with a backbone whose hash was kept; another hash is another backbone."""
    cache = world.clear() / "cache"
    above = {"ptrun.backbone.files:_KEPT_ABOVE": 0}
    given: Any = {"environment": {"XDG_CACHE_HOME": str(cache)}, "set": above}
    line = ["predict", str(world.finished), "--input", f"{world.inputs}/rows.csv"]
    world.done(*line, **given)
    return Damage(next(cache.glob("ptrun/weights/*")), line, given=given)


def modelled(world: World, name: str) -> Damage:
    """Predict with a backbone whose files are damaged."""
    model = shutil.copytree(world.model, world.clear() / "model")
    line = ["predict", str(world.finished), "--input", f"{world.inputs}/rows.csv"]
    return Damage(model / name, [*line, f"backbone.path={model}"])


KINDS: dict[str, tuple[Make, str]] = {
    "state, resume": (resumed, "state.safetensors"),
    "journal, resume": (resumed, "metrics.jsonl"),
    "state of one rank, resume": (resumed_ranks, ""),
    "state of an adaptation, resume": (resumed_adapt, "made.state.safetensors"),
    "owner, resume": (owned, ""),
    "prompt, predict": (predicted, "prompt.safetensors"),
    "prompt, start=run:": (followed, "prompt.safetensors"),
    "prompt, start=pretrained": (started, "prompt.safetensors"),
    "result, predict": (predicted, "result.json"),
    "result, report": (reported, "result.json"),
    "result, start=pretrained": (started, "result.json"),
    "failure, report": (reported_failure, "failure.json"),
    "run.yaml, predict": (predicted, "run.yaml"),
    "run.yaml, rerun": (repeated, "run.yaml"),
    "journal, diff": (compared, "metrics.jsonl"),
    "predictions, diff": (compared, "predictions.jsonl"),
    "labels, train": (learned, ""),
    "report of a search, search": (searched_on, "search.json"),
    "jobs of a cluster, status": (listed, ""),
    "kept hashes, predict": (hashed, ""),
    "weights, predict": (modelled, "model.safetensors"),
    "tokenizer, predict": (modelled, "tokenizer.json"),
    "tokenizer settings, predict": (modelled, "tokenizer_config.json"),
    "configuration, predict": (modelled, "config.json"),
}
if not HAS_RANKS:
    del KINDS["state of one rank, resume"]


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


def do(world: World, kind: str, number: int, seed: int) -> Ended:
    """Damage a file at one place."""
    make, name = KINDS[kind]
    if kind not in world.answers:
        clean, world.answers[kind] = make(world, name).do(world)
        assert clean.code == 0, (kind, clean)
    case = make(world, name)
    what = damage(case.file, random.Random(f"{kind} {number} {seed}"))
    done, answer = case.do(world)
    end = of_damage(done, answer, world.answers[kind], case.file)
    return Ended(kind, end, what, f"{done.code} {done.err[-900:]}")
