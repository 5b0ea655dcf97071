"""A small disk: it is full while a command writes, or cannot be written, and then it can again.

The disk is a tmpfs, which root may mount. Where that is not allowed, a limit of the size of a file
(RLIMIT_FSIZE) takes its place, and nothing is read-only.
"""

import os
import random
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from workshop.drill.ends import Ended, of_fault
from workshop.drill.warm import Call, Called
from workshop.drill.works import WORKS
from workshop.drill.world import World

PAGE = 4096  # bytes
_LARGE = 2**30
_LOOK = 0.005  # seconds between looks at a disk that fills


class Disk:
    """A tmpfs at a folder.

    Args:
        folder: where it is mounted.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir(exist_ok=True)
        _mount("-t", "tmpfs", "-o", f"size={_LARGE}", "drill", str(folder))

    def hold(self, size: int) -> None:
        """Give the disk another size in bytes."""
        _mount("-o", f"remount,rw,size={size}", str(self.folder))

    def refuse(self) -> None:
        """Let nothing be written."""
        _mount("-o", "remount,ro", str(self.folder))

    def used(self) -> int:
        """Return the bytes on the disk."""
        state = os.statvfs(self.folder)
        return (state.f_blocks - state.f_bfree) * state.f_frsize

    def remove(self) -> None:
        """Unmount."""
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)


def can_mount() -> bool:
    """Return whether this user may mount."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            Disk(Path(folder)).remove()
        except (OSError, subprocess.CalledProcessError):
            return False
    return True


def full(world: World, kind: str, number: int, seed: int) -> Ended:
    """Do a command on a disk of some size, then again on a large one."""
    with small(world) as disk:
        expected, peak = _needed(world, disk, kind)
        size = _size(f"full {kind} {number} {seed}", peak)
        call = _call(world, kind, disk.folder)
        held = PAGE + size
        disk.hold(held)
        first = world.warm.run(call)
        disk.hold(_LARGE)
        return _judged(world, kind, call, first, expected, f"{held:,} bytes")


def limited(world: World, kind: str, number: int, seed: int) -> Ended:
    """Do a command with a limit of the size of a file, then again without."""
    folder = world.clear()
    call = _call(world, kind, folder)
    done = world.warm.run(call)
    assert done.code == 0, (kind, done)
    expected = WORKS[kind].answer(call.cwd)
    largest = max(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    size = _size(f"full {kind} {number} {seed}", largest)
    call = _call(world, kind, world.clear())
    first = world.warm.run(Call(call.arguments, call.cwd, set=call.set, limit=size))
    return _judged(world, kind, call, first, expected, f"{size:,} bytes of a file")


def read_only(world: World, kind: str, number: int, seed: int) -> Ended:
    """Do a command on a disk that cannot be written, then again on one that can."""
    with small(world) as disk:
        expected, _ = _needed(world, disk, kind)
        call = _call(world, kind, disk.folder)
        disk.refuse()
        first = world.warm.run(call)
        disk.hold(_LARGE)
        return _judged(world, kind, call, first, expected, "read-only")


@contextmanager
def small(world: World) -> Iterator[Disk]:
    """Yield a disk; it is gone afterwards."""
    disk = Disk(world.root / "disk")
    try:
        yield disk
    finally:
        disk.remove()


def _call(world: World, kind: str, folder: Path) -> Call:
    """Return a command whose temporary files are on the same disk."""
    own = folder / "own"
    for one in (own, folder / "tmp"):
        one.mkdir(exist_ok=True)
    environment = {"TMPDIR": str(folder / "tmp")}
    return Call(WORKS[kind].line(world, own), own, environment, WORKS[kind].set)


def _needed(world: World, disk: Disk, kind: str) -> tuple[str, int]:
    """Return what a command leaves, and the most bytes it needs; done once in a world."""
    key = f"disk {kind}"
    if key not in world.answers:
        with _watched(disk) as peak:
            done = world.warm.run(_call(world, kind, disk.folder))
        assert done.code == 0, (kind, done)
        world.answers[key] = WORKS[kind].answer(disk.folder / "own"), peak[0]
        subprocess.run(["find", str(disk.folder), "-mindepth", "1", "-delete"], check=True)
    found: tuple[str, int] = world.answers[key]
    return found


@contextmanager
def _watched(disk: Disk) -> Iterator[list[int]]:
    """Yield a list whose number is the most bytes on a disk."""
    peak, done = [0], threading.Event()

    def look() -> None:
        while not done.wait(_LOOK):
            peak[0] = max(peak[0], disk.used())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def _size(name: str, largest: int) -> int:
    """Return a size up to the largest: small ones as often as large ones."""
    draw: Any = random.Random(name)
    return int(PAGE * (largest / PAGE) ** draw.random())


def _judged(world: World, kind: str, call: Call, first: Called, expected: str, what: str) -> Ended:
    answer = WORKS[kind].answer
    found = answer(call.cwd)
    again = world.warm.run(call) if found != expected or first.code else first
    path = call.cwd.parent
    end = of_fault(first, again, answer(call.cwd), expected, path)
    said = f"{first.code} {first.err[-900:]}\n-- again {again.code} {again.err[-500:]}"
    return Ended(kind, end, what, said)
