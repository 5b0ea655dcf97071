"""The runs that a server offers: found in folders, loaded on demand, unloaded least used first."""

import logging
import time
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from ptrun.errors import UserError
from ptrun.folder import result
from ptrun.folder.digest import PROMPT
from ptrun.predicting.answering import ready
from ptrun.predicting.together import Loaded, Together

_LOG = logging.getLogger(__name__)
_LOOK_EVERY = 2.0  # seconds


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
        self.folders = self._found()
        self._looked = time.monotonic()
        if not self.folders:
            raise UserError(
                f"serve {' '.join(map(str, places))}: no finished run with a {PROMPT} there."
            )
        first = ready(str(next(iter(self.folders.values()))), self.typed)
        self.shared = Together(first)
        self.loaded = OrderedDict({next(iter(self.folders)): self.shared.first})
        self.unloads = 0

    def ids(self) -> list[str]:
        """Return the ids of all runs."""
        if self.watch and time.monotonic() - self._looked > _LOOK_EVERY:
            self._looked, self.folders = time.monotonic(), self._found()
            for name in [own for own in self.loaded if own not in self.folders]:
                del self.loaded[name]
        return list(self.folders)

    def get(self, name: str) -> Loaded:
        """Return a run by its id or the 8 digits at its end; it is loaded if it is not.

        Raises:
            UnknownRun: there is none, or several.
            UserError: it has another backbone, changes it, or is damaged.
        """
        ids = self.ids()
        fit = [own for own in ids if name and own.endswith(f"-{name}")]
        fit = [name] if name in self.folders else fit
        if len(fit) != 1:
            raise UnknownRun(
                f"model={name!r}: no such run. GET /v1/models lists {len(self.folders)}."
            )
        if fit[0] not in self.loaded:
            self.loaded[fit[0]] = self._load(fit[0])
            self._unload()
        self.loaded.move_to_end(fit[0])
        return self.loaded[fit[0]]

    @property
    def size(self) -> int:
        """The bytes of all loaded prompts."""
        return sum(own.size for own in self.loaded.values())

    def _load(self, name: str) -> Loaded:
        """Return a run; the message of an error has its id, not its place."""
        folder = self.folders[name]
        try:
            return self.shared.load(ready(str(folder), self.typed))
        except UserError as error:
            _LOG.warning("%s is not served: %s", name, error)
            raise UserError(str(error).replace(f"{folder.parent}/", "")) from error

    def _unload(self) -> None:
        while len(self.loaded) > 1 and self.size > self.most_bytes:
            name, _ = self.loaded.popitem(last=False)
            self.unloads += 1
            _LOG.info("unloaded %s", name)

    def _found(self) -> dict[str, Path]:
        """Return the folders of finished runs that have a prompt, by id; the first of two stays."""
        found: dict[str, Path] = {}
        for place in self.places:
            files = [place / PROMPT] if (place / PROMPT).is_file() else place.rglob(PROMPT)
            for folder in sorted(file.parent for file in files):
                if (folder / result.FINISHED).is_file():
                    found.setdefault(folder.name, folder)
        return found
