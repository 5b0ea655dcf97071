"""Owners of runs on other machines: whether they still beat, without comparing clocks."""

import time
from pathlib import Path

from ptrun.folder import lease


class Beats:
    """Remembers when the beat of an owner last changed, on this machine's own clock."""

    def __init__(self) -> None:
        self.seen: dict[Path, tuple[lease.Owner, float]] = {}
        self.alive: set[Path] = set()

    def silent(self, folder: Path) -> bool | None:
        """Return whether the owner of a run is silent for too long; None if it is not known yet."""
        owner, now = lease.owner(folder), time.monotonic()
        if owner is None:
            return True
        if owner.here:  # the system says whether it lives
            return False
        before, since = self.seen.setdefault(folder, (owner, now))
        if owner != before:
            self.seen[folder] = owner, now
            self.alive.add(folder)
        elif now - since > lease.SILENCE:
            return True
        return False if folder in self.alive else None

    def unsure(self, folder: Path) -> bool:
        """Return whether a run may be left by its owner on another machine."""
        owner = lease.owner(folder)
        return owner is not None and not owner.here and self.silent(folder) is not False
