"""A run folder: saved state, prompt, metrics, predictions, result.

`state.safetensors` holds every learned tensor, the optimizer's moments and the best tensors so
far. Its header holds the rest of the state as JSON, so one rename replaces both.
"""

import errno
import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any

from torch import Tensor

from ptrun.config.identity import file_name
from ptrun.errors import UserError
from ptrun.files import append, from_json, read_text, write_text
from ptrun.folder import digest, result
from ptrun.folder import tensors as files
from ptrun.folder.digest import PROMPT
from ptrun.types import Example, Prediction, RunResult, Tracker

_LOG = logging.getLogger(__name__)
_DRAFT = re.compile(r"\..+\.\d+")
_TRAINING_EVENTS = ("step", "skipped", "dev")


class RunStore:
    """The folder of one run.

    Args:
        folder: `<outputs>/<name>/<run_id>`.
        bound: the backbone of the tensors (name, revision, fingerprint), written into every file
            and compared on reading.
        tracker: also gets the rows of `metrics.jsonl`.
        part: the name of one part of the run; "" is the whole run.
        main: whether this process writes; of several only the first does.
    """

    def __init__(
        self,
        folder: Path,
        bound: Mapping[str, str],
        tracker: Tracker,
        part: str = "",
        *,
        main: bool = True,
    ):
        self.folder, self.bound, self.tracker, self.main = folder, dict(bound), tracker, main
        folder.mkdir(parents=True, exist_ok=True)
        self._part = part
        self._metrics = folder / "metrics.jsonl"
        self.state_file = state_file(folder, part)

    def part(self, name: str) -> "RunStore":
        """Return the store of one part: it has its own state, and its rows have its name."""
        return RunStore(self.folder, self.bound, self.tracker, name) if name else self

    def clean(self) -> None:
        """Remove the drafts of processes that were killed; only the owner of the folder may."""
        for file in self.folder.iterdir():
            if file.is_symlink() and not _DRAFT.fullmatch(file.name):  # a tracker would follow it
                raise OSError(errno.EXDEV, "a link in the folder of a run", str(file))
            if _DRAFT.fullmatch(file.name):
                with suppress(FileNotFoundError):
                    file.unlink()

    def log(self, row: Mapping[str, Any]) -> None:
        """Append a row to `metrics.jsonl`; it survives a killed process."""
        named = {**({"part": self._part} if self._part else {}), **row}
        if self.main:
            append(self._metrics, digest.line(named))
            self.tracker.log(named)

    def draft(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> Callable[[], object]:
        """Write a state beside the saved one; return what replaces that one, atomically."""
        return draft(self.state_file, tensors, self.bound, state=json.dumps(dict(meta)))

    def restore(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return the saved state, and remove later steps from `metrics.jsonl`.

        Its plain data have the `losses` of the steps, as the journal has them.
        """
        if not self.state_file.is_file():
            self._cut_metrics(-1)
            return None
        tensors, header = read_tensors(self.state_file, self.bound)
        with digest.damaged(self.state_file, "its header has no step"):
            meta = dict(from_json(header["state"]))
            steps = [meta["step"], *(row["step"] for row in meta.get("history", ()))]
            counts = [meta[key] for key in ("tokens", "token_budget") if meta.get(key) is not None]
            if not all(map(digest.is_count, [*steps, *counts])):
                raise ValueError("a step is no number")
        evaluated = [row["step"] for row in meta.get("history", ())]
        rows = self._cut_metrics(int(meta["step"]), evaluated)
        return tensors, {**meta, "losses": [row["loss"] for row in rows if "loss" in row]}

    def write_prompt(
        self, tensors: Mapping[str, Tensor], method: Mapping[str, Any], task: Mapping[str, Any]
    ) -> None:
        """Write `prompt.safetensors`, which predictions need.

        Its header has the method's configuration, and what the task read from its data.
        """
        header = {"method": json.dumps(dict(method)), "task": json.dumps(dict(task))}
        if self.main:
            self.write_tensors(self.folder / PROMPT, tensors, header)

    def write_predictions(
        self, examples: Sequence[Example], predictions: Sequence[Prediction]
    ) -> None:
        """Write predictions and targets to `predictions.jsonl`, one example a line."""
        rows = (
            {"id": e.id, "prediction": p.value, **p.also, "target": target}
            for e, p in zip(examples, predictions, strict=True)
            for target in [e.target if p.reference is None else [p.reference]]
        )
        self._write_lines("predictions.jsonl", rows)

    def write_study(self, examples: Sequence[Example]) -> None:
        """Write the examples that the backbone wrote to `study.jsonl`."""
        self._write_lines("study.jsonl", map(asdict, examples))

    def _write_lines(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        if self.main:
            lines = (json.dumps(dict(r), ensure_ascii=False, default=asdict) + "\n" for r in rows)
            write_text(self.folder / name, "".join(lines))

    def close(self, outcome: RunResult) -> None:
        """Write the result; nothing is written after it."""
        if self.main:
            result.write(self.folder, outcome)
            self.tracker.finish(outcome)

    def write_tensors(
        self, file: Path, tensors: Mapping[str, Tensor], header: Mapping[str, str]
    ) -> None:
        """Write a safetensors file atomically; its header names the backbone of the tensors."""
        draft(file, tensors, self.bound, **header)()

    def _cut_metrics(self, step: int, evaluated: Iterable[int] = ()) -> list[dict[str, Any]]:
        """Remove rows of later steps, which training repeats; warn if earlier ones are lost.

        Return the rows of this part's steps.
        """
        text, training = "", list[dict[str, Any]]()
        if self._metrics.is_file():
            text = read_text(self._metrics, "replace", limit=digest.LONGEST)
        lines = text[: text.rfind("\n") + 1].split("\n")[:-1]  # a killed process may cut the last
        for number, line in enumerate(lines, start=1):
            try:
                row = digest.row(line)
            except ValueError as error:  # it decides no number
                told = "%s:%d: damaged (%s); the line is left out"
                _LOG.warning(told, self._metrics, number, error)
                continue
            training += [row] * (row.get("event") in _TRAINING_EVENTS)
        rows = [
            row
            for row in training
            if row.get("part", "") != self._part or row.get("step", 0) <= step
        ]
        if self._metrics.is_file():
            write_text(self._metrics, "".join(map(digest.line, rows)))
        ours = [row for row in rows if row.get("part", "") == self._part]
        there = {(row["event"] == "dev", row.get("step")) for row in ours}
        expected = {(False, n) for n in range(1, step + 1)} | {(True, n) for n in evaluated}
        if lost := len(expected - there):
            _LOG.warning("%s: damaged (%d earlier rows are lost)", self._metrics, lost)
        return [row for row in ours if row["event"] == "step"]


def state_file(folder: Path, part: str = "") -> Path:
    """Return the state file of a run or of one part; the name of a part is encoded."""
    return folder / f"{f'{file_name(part)}.' if part else ''}state.safetensors"


def bound_to(backbone: Any) -> dict[str, str]:
    """Return what identifies a backbone in the files of a run: name, revision, fingerprint."""
    return {"name": backbone.name, "revision": str(backbone.revision), "weights": backbone.weights}


def draft(
    file: Path, tensors: Mapping[str, Tensor], bound: Mapping[str, str], **header: str
) -> Callable[[], object]:
    """Write a safetensors file whose header names its backbone; return what puts it in place."""
    backbone = json.dumps(dict(bound), sort_keys=True)
    return files.draft(file, tensors, {**header, "backbone": backbone})


def read_tensors(
    file: Path, bound: Mapping[str, str], place: object = None
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and header of a state or prompt file; `place` has the backbone's files."""
    tensors, header = files.read(file)
    made_with = made_over(file, header)
    if made_with != dict(bound):
        raise UserError(
            f"{file}: made with backbone {made_with['name']} ({made_with['weights']}), not "
            f"{bound['name']} ({bound['weights']}){f' in {place}' if place else ''}. Use that "
            "backbone, or another run."
        )
    return tensors, header


def made_over(file: Path, header: Mapping[str, str]) -> dict[str, str]:
    """Return the backbone of a file: its name, revision and fingerprint."""
    with digest.damaged(file, "its header names no backbone"):
        backbone = from_json(header["backbone"])
        return {key: backbone[key] for key in ("name", "revision", "weights")}


def set_aside(folder: Path) -> None:
    """Rename a run folder to `<folder>~<n>`, so `rerun=true` keeps it."""
    if folder.is_dir():
        names = (folder.with_name(f"{folder.name}~{number}") for number in count(1))
        folder.rename(next(name for name in names if not os.path.lexists(name)))
