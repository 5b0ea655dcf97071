"""What the drill works with: data, finished runs, and processes that do commands."""

import os
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ptrun.backbone.files import SHIPPED
from workshop.drill.warm import Call, Called, Warm

SAVES = {"ptrun.training.member:SAVE_SECONDS": 0.0}
"""Runs of a second save at every step."""
POCKET = ["task=pocket_sentiment", "method=prompt_tuning", "method.length=4"]
POCKET += ["readout=verbalizer"]
POCKET += ["setting=few_shot_32", "train.max_steps=4", "train.eval_every=2", "train.batch_size=8"]
NOUNS = ("film", "story", "plot", "cast", "end", "scene", "song", "play", "joke", "book")
SPAN = '{{"text": "Ann met {0} in Rome.", "spans": [[0, 3, "PER"], [{1}, {2}, "LOC"]]}}\n'


class World:
    """A folder with data, a run that finished, and a run that was interrupted.

    Args:
        root: a folder of its own.
        warm: does the commands.
    """

    def __init__(self, root: Path, warm: Warm):
        self.root, self.warm, self.now = root, warm, root / "now"
        self.inputs = root / "inputs"
        self.inputs.mkdir(parents=True)
        _write_inputs(self.inputs)
        self.model = shutil.copytree(SHIPPED / "pocket_bert", self.inputs / "model")
        self.line = [*POCKET, f"backbone.path={self.model}"]
        self.done(*self.line, "keep=all", f"outputs={root / 'clean'}")
        self.finished = next((root / "clean").rglob("result.json")).parent
        self.answers: dict[str, Any] = {}

    def call(self, *arguments: str, **given: Any) -> Called:
        """Do a command."""
        return self.warm.run(Call(arguments, self.root, **given))

    def done(self, *arguments: str, **given: Any) -> Called:
        """Do a command that must go well."""
        done = self.call(*arguments, **given)
        assert done.code == 0, f"{' '.join(arguments)}: {done}"
        return done

    def fresh(self, folder: Path) -> Path:
        """Return a copy of a run folder, in a folder of outputs of its own."""
        self.clear()
        return shutil.copytree(folder, self.now / "runs" / folder.name)

    def clear(self) -> Path:
        """Return the folder of one case, empty."""
        shutil.rmtree(self.now, ignore_errors=True)
        self.now.mkdir()
        return self.now

    def table(self, *parts: str) -> list[str]:
        """Return the overrides of a run on the table of films."""
        files = [f"task.{part}={self.inputs / part}.csv" for part in ("train", "dev", "test")]
        own = ["task=csv", "task.text=text", "task.label=label", *files, "train.batch_size=8"]
        return [*own, "train.max_steps=12", "train.eval_every=4", *(parts or PROMPT)]

    def halted(self, outputs: Path, *line: str) -> Path:
        """Return the folder of a run that was killed once it had a saved state in `outputs`."""
        running = self.warm.start(Call(line, self.root, set=SAVES))
        until = time.monotonic() + 60
        while not (found := list(outputs.rglob("*state.safetensors"))):
            assert time.monotonic() < until, running.end()
            time.sleep(0.001)
        os.kill(running.pid, signal.SIGKILL)
        running.end()
        return found[0].parent


PROMPT = ("method=prompt_tuning", "method.length=3")


def _write_inputs(folder: Path) -> None:
    """Write a table of opinions, rows to predict, marked names, and lines without labels."""
    for part, numbers in {"train": range(6), "dev": range(6, 8), "test": range(8, 10)}.items():
        rows = [
            f"the {NOUNS[n]} {m} is {word},{label}"
            for n in numbers
            for m in (1, 2)
            for word, label in (("good", "yes"), ("bad", "no"))
        ]
        (folder / f"{part}.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    lines = [f"the {noun} was {word} and slow" for noun in NOUNS for word in ("good", "bad")]
    (folder / "rows.csv").write_text("\n".join(["sentence", *lines * 30]) + "\n")
    (folder / "lines.txt").write_text("\n\n".join(_documents(lines)))
    (folder / "short.txt").write_text("\n\n".join(_documents(lines, 30, 1)))
    names = [SPAN.format(noun, 12 + len(noun), 16 + len(noun)) for noun in NOUNS * 20]
    (folder / "names.jsonl").write_text("".join(names))


def _documents(lines: list[str], parts: int = 8, size: int = 5) -> list[str]:
    """Return documents of some lines each; each line is there once in every part."""
    many = [f"{line} in part {n}" for n in range(parts) for line in lines]
    return ["\n".join(many[place : place + size]) for place in range(0, len(many), size)]


def environment(folder: Path) -> Mapping[str, str]:
    """Return variables that put all temporary files into a folder."""
    (folder / "tmp").mkdir(parents=True, exist_ok=True)
    return {"TMPDIR": str(folder / "tmp"), "PATH": os.environ["PATH"]}
