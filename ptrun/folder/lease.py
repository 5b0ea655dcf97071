"""A lease: one process at a time owns a run folder.

The lock is that of the operating system (`filelock`), which ends with its process. Beside it
`.RUN_ID.owner` says who holds it, with a beat that changes every 5 seconds. Some network file
systems lock each machine on its own. So a lock whose owner is on another machine is only taken over
if its beat stands still. The clocks of the machines are not compared.
"""

import errno
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import get_type_hints

from filelock import FileLock, Timeout

from ptrun.errors import UserError, all_readable
from ptrun.files import read_json, write_text
from ptrun.folder.digest import DAMAGES

_LOG = logging.getLogger(__name__)
BEAT = 5.0
"""Seconds between beats."""
SILENCE = 3 * BEAT
"""Seconds without a beat after which an owner on another machine counts as dead."""
_LIMIT = 10_000  # bytes of an owner's file
_POLL = 1.0  # seconds between looks at a lock that is waited for


class Busy(UserError):
    """Another process holds the lease."""


@dataclass(frozen=True)
class Owner:
    """The process that holds a lease, and since when; `beat` counts up while it lives.

    `born` tells a process from a later one with the same id.
    """

    host: str
    pid: int
    since: str
    beat: int = 0
    born: str = ""

    def __str__(self) -> str:
        """Return who it is, for a message."""
        return f"process {self.pid} on {self.host} since {self.since}"

    @property
    def here(self) -> bool:
        """Whether the process is on this machine."""
        return self.host == socket.gethostname()

    @property
    def gone(self) -> bool:
        """Whether the process is on this machine and has ended."""
        if not self.here:
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:  # another user's process
            pass
        return _birth(self.pid) != self.born


def _birth(pid: int) -> str:
    """Return when a process started, in clock ticks; "" where that is not known or it has died."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def owner(folder: Path) -> Owner | None:
    """Return the owner of a run folder; None if nobody holds its lease."""
    try:
        holder = Owner(**all_readable(read_json(_owner_file(folder), limit=_LIMIT)))
    except (OSError, *DAMAGES):
        return None
    kinds = get_type_hints(Owner)
    if any(type(getattr(holder, name)) is not kind for name, kind in kinds.items()):
        return None
    return None if not 0 < holder.pid < 2**31 or holder.gone else holder


@contextmanager
def held(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold the lease of a run folder. With `wait`, wait for its owner first."""
    created = [path for path in (folder.parent, *folder.parent.parents) if not path.exists()]
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _not_writable(folder.parent, error) from error
    lock = FileLock(folder.with_name(f".{folder.name}.lock"))
    try:
        _acquire(lock, folder, wait=wait)
        with _beating(folder):
            yield
    finally:
        if lock.is_locked:
            with suppress(OSError):
                Path(lock.lock_file).unlink()  # filelock notices a lock on a removed file
            lock.release()
        for empty in created:
            with suppress(OSError):
                empty.rmdir()


def _not_writable(folder: Path, error: OSError) -> UserError:
    return UserError(
        f"{folder}: the folder of runs cannot be written ({error.strerror}). Type outputs=DIR "
        "with a folder of your own."
    )


def _acquire(lock: FileLock, folder: Path, *, wait: bool) -> None:
    told = False
    while True:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            pass
        except OSError as error:
            if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
                raise _not_writable(folder.parent, error) from error
            raise UserError(
                f"{lock.lock_file}: this file system cannot lock files ({error.strerror}), so two "
                "processes could write one run. Type outputs=DIR on another one."
            ) from error
        else:
            if not _alive_elsewhere(folder):
                return
            lock.release()
        holder = owner(folder) or "another process"
        if not wait:
            raise Busy(
                f"{folder.name} is being run by {holder}. Let it finish, or type sweep.wait=true "
                "to wait for it."
            )
        if not told:
            _LOG.info("waiting for %s, run by %s", folder.name, holder)
            told = True
        time.sleep(_POLL)


def _alive_elsewhere(folder: Path) -> bool:
    """Return whether an owner on another machine still beats."""
    beats = Beats()
    while (silent := beats.silent(folder)) is None:
        time.sleep(min(_POLL, SILENCE))
    holder = owner(folder)
    return not silent and holder is not None and not holder.here


class Beats:
    """Remembers when the beat of an owner last changed, on this machine's own clock."""

    def __init__(self) -> None:
        self.seen: dict[Path, tuple[Owner, float]] = {}
        self.alive: set[Path] = set()

    def silent(self, folder: Path) -> bool | None:
        """Return whether the owner of a run is silent for too long; None if it is not known yet."""
        holder, now = owner(folder), time.monotonic()
        if holder is None:
            return True
        if holder.here:  # the system says whether it lives
            return False
        before, since = self.seen.setdefault(folder, (holder, now))
        if holder != before:
            self.seen[folder] = holder, now
            self.alive.add(folder)
        elif now - since > SILENCE:
            return True
        return False if folder in self.alive else None

    def unsure(self, folder: Path) -> bool:
        """Return whether a run may be left by its owner on another machine."""
        holder = owner(folder)
        return holder is not None and not holder.here and self.silent(folder) is not False


@contextmanager
def _beating(folder: Path) -> Iterator[None]:
    """Write the owner's file, and again with every beat."""
    since = datetime.now().astimezone().isoformat(timespec="seconds")
    this = Owner(socket.gethostname(), os.getpid(), since, born=_birth(os.getpid()))
    file, done = _owner_file(folder), threading.Event()

    def beat() -> None:
        count = 0
        while not done.wait(BEAT):
            count += 1
            with suppress(OSError):  # a full disk: the lock itself still holds
                _write(file, replace(this, beat=count))

    _write(file, this)
    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        file.unlink(missing_ok=True)


def _write(file: Path, owner: Owner) -> None:
    write_text(file, json.dumps(asdict(owner)))


def _owner_file(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.owner")
