"""The runs that a server offers: found in folders, loaded on demand, unloaded least used first."""

import logging
import os
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from math import isfinite, nan
from pathlib import Path
from typing import Any

from ptrun.errors import UserError, visible
from ptrun.files import from_json, opened_tensors
from ptrun.folder import result
from ptrun.folder.digest import PROMPT, unpacked
from ptrun.folder.find import fitting
from ptrun.predicting.answering import ready
from ptrun.predicting.together import Loaded, Together
from ptrun.readout.multilabel import THRESHOLDS
from ptrun.runs.finished import recalled
from ptrun.task.dataset import MESSAGES

_LOG = logging.getLogger(__name__)
_LOOK_EVERY = 2.0  # seconds
_TOLD = 5  # runs by name


class UnknownRun(UserError):
    """No run of this name is offered."""


class Prompts:
    """The runs over one backbone, by id.

    Args:
        places: run folders, or folders with runs below them.
        typed: `KEY=VALUE` arguments, as `ptrun predict` takes them.
        most_bytes: of loaded prompts; the least used ones are unloaded. One is always kept.
        watch: whether to look for new and removed runs while serving.

    Raises:
        UserError: there is no finished run, or the first one's weights cannot be read.
    """

    def __init__(
        self, places: Sequence[Path], typed: Sequence[str], *, most_bytes: int, watch: bool
    ):
        self.places, self.typed = places, list(typed)
        self.most_bytes, self.watch = most_bytes, watch
        self._backbone: tuple[str, str | None] | None = None  # its name and fingerprint
        self._reasons: dict[Path, str | None] = {}
        self._answers: dict[Path, dict[str, Any]] = {}
        self.folders = self._found()
        self._looked = time.monotonic()
        if not self.folders:
            raise UserError(
                f"serve {' '.join(map(str, places))}: no finished run with a {PROMPT} there that "
                "can share its backbone."
            )
        self.shared = self._first()
        self._backbone = self.shared.backbone.name, self.shared.backbone.weights
        self.loaded = OrderedDict({next(iter(self.folders)): self.shared.first})
        self.unloads = 0

    def _first(self) -> Together:
        """Load the first run that shares its backbone, or the last one; others are left out."""
        while True:
            name, folder = next(iter(self.folders.items()))
            shared = Together(ready(str(folder), self.typed, "serve"))
            if len(self.folders) == 1 or not shared.alone:
                return shared
            self._reasons[folder] = "it changes the backbone"
            _LOG.warning("not served, since it changes the backbone (serve it alone): %s", name)
            del self.folders[name]

    def ids(self) -> list[str]:
        """Return the ids of all runs."""
        if self.watch and time.monotonic() - self._looked > _LOOK_EVERY:
            self._looked, self.folders = time.monotonic(), self._found()
        return list(self.folders)

    def get(self, name: str) -> Loaded:
        """Return a run by what `named` takes; it is loaded if it is not."""
        name = self.named(name)
        for gone in self.loaded.keys() - self.folders.keys():  # by the one thread that loads
            del self.loaded[gone]
        if name not in self.loaded:
            try:
                self.loaded[name] = self.shared.load(ready(str(self.folders[name]), self.typed))
            except UserError as error:  # its message has places, which clients do not get
                _LOG.warning("%s is not served: %s", visible(name), error)
                said = f"{name} cannot be loaded; the log of the server says why."
                raise UserError(said) from error
            while len(self.loaded) > 1 and self.size > self.most_bytes:
                unloaded, _ = self.loaded.popitem(last=False)
                self.unloads += 1
                _LOG.info("unloaded %s", unloaded)
        self.loaded.move_to_end(name)
        return self.loaded[name]

    def named(self, name: str) -> str:
        """Return the id of a run, given as its id, the start of it or the 8 digits at its end.

        Raises:
            UnknownRun: there is none, or several.
        """
        ids = fitting(name, self.ids())
        if len(ids) != 1:
            several = f"{len(ids)} runs, such as {', '.join(ids[:2])}"
            raise UnknownRun(
                f"model={name!r}: {several if ids else 'no such run'}. GET /v1/models lists "
                f"{len(self.folders)}."
            )
        return ids[0]

    def facts(self, name: str) -> dict[str, Any]:
        """Return a run as OpenAI lists a model, with what it answers; a damaged one lacks that.

        `created` is when it was finished.
        """
        facts = {"id": name, "object": "model", "created": 0, "owned_by": "ptrun"}
        if (folder := self.folders.get(name)) is None:
            return facts
        if (mark := folder / result.FINISHED).exists():
            facts["created"] = int(mark.stat().st_mtime)
        if folder not in self._answers:
            try:
                self._answers[folder] = {"ptrun": _answers(folder)}
            except Exception as error:  # a folder of somebody else may hold anything
                _LOG.warning("%s is not listed with its task (%s)", visible(name), error)
                self._answers[folder] = {}
        return {**facts, **self._answers[folder]}

    @property
    def size(self) -> int:
        """The bytes of all loaded prompts."""
        return sum(loaded.size for loaded in self.loaded.values())

    def _found(self) -> dict[str, Path]:
        """Return the folders of finished runs over the backbone of the first, by id.

        Of two with one id the first whole one stays. Why others are left out is told once.
        """
        folders = [folder for place in self.places for folder in sorted(_finished(place))]
        new = [folder for folder in folders if folder not in self._reasons]
        for folder in new:
            try:
                self._reasons[folder] = self._reason(folder, alone=len(folders) == 1)
            except Exception as error:  # a folder of somebody else may hold anything
                self._reasons[folder] = f"unreadable ({type(error).__name__})"
        for reason in sorted({why for folder in new if (why := self._reasons[folder])}):
            left = [visible(folder.name) for folder in new if self._reasons[folder] == reason]
            more = f" and {len(left) - _TOLD} more" if len(left) > _TOLD else ""
            _LOG.warning("not served, %s: %s%s", reason, ", ".join(left[:_TOLD]), more)
        offered: dict[str, Path] = {}
        for folder in sorted(folders, key=lambda folder: self._reasons[folder] == ""):
            if not self._reasons[folder]:
                offered.setdefault(folder.name, folder)
        return offered

    def _reason(self, folder: Path, *, alone: bool) -> str | None:
        """Return why a run cannot share the backbone, as far as its result tells, or None."""
        if not (folder.name.isascii() and folder.name.isprintable()):
            return "with a name that no run has"
        if not (folder / PROMPT).is_file():
            return f"without {PROMPT} (a run that tunes the backbone keeps it by keep=weights)"
        try:
            done = result.read(folder)
        except UserError:
            return ""  # whoever asks for it is told that it is damaged
        if done is not None and done.run_id != folder.name and folder not in self.places:
            return f"holding another run than its name says ({done.run_id})"
        if done is None or alone:
            return None
        if done.learned_parameters["backbone"]:
            return "their backbone was tuned (serve such a run alone)"
        place = done.manifest["backbone"]
        backbone = self._backbone = self._backbone or (place["name"], place["weights"])
        is_other = backbone != (place["name"], place["weights"])
        return "over another backbone than the first run" if is_other else None


def _finished(place: Path) -> Iterator[Path]:
    """Yield the folders of finished runs at or below a place, without following links."""

    def skipped(error: OSError) -> None:
        name = visible(Path(error.filename).name[:80])
        _LOG.warning("%s: not looked at (%s)", name, error.strerror)

    for folder, folders, files in os.walk(place, onerror=skipped):
        if result.FINISHED in files:
            folders.clear()
            yield Path(folder)


def _answers(folder: Path) -> dict[str, Any]:
    """Return the task, method, seed and score of a run, and what it reads and answers.

    A field is a `text`, `lines` (a list of texts), `words` (those of a sentence) or a `number`.
    """
    done = result.read(folder)
    assert done is not None
    with opened_tensors(folder / PROMPT, "pt") as file:
        saved = from_json(unpacked(file.metadata())["task"])
        chosen = file.get_tensor(THRESHOLDS) if THRESHOLDS in [*file.keys()] else None
    task = recalled(done.config["task"], saved, None)
    thresholds = dict.fromkeys(task.labels, 0.5) if task.answer == "labels" else None
    if chosen is not None:
        thresholds = dict(zip(task.labels, chosen.tolist(), strict=True))
    fields = {name: "lines" if name == task.options else "text" for name in task.reads}
    if task.answer in ("tags", "word_labels"):  # of words; a predicate is an index
        fields = {name: "words" if name in task.fields else "number" for name in fields}
    part = "test" if done.metrics["test"] else "dev"  # a trial of a search has no test
    score = done.metrics[part].get(done.metric, nan)
    return {
        "task": done.names["task"], "method": done.names["method"], "seed": done.seed,
        "metric": done.metric, "part": part, "score": score if isfinite(score) else None,
        "fields": fields, "answer": "turn" if MESSAGES in task.fields else task.answer,
        "labels": [*task.labels], "options": task.options, "thresholds": thresholds,
    }  # fmt: skip
