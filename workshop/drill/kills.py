"""Kill a command or one of its processes at random moments; type it again until it is done.

What it then leaves must be what an undisturbed one leaves. A case has several kills.
"""

import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

from workshop.drill.ends import Ended, drafts, has_traceback
from workshop.drill.warm import Call, Called, Running
from workshop.drill.works import WORKS
from workshop.drill.world import World

KINDS = tuple(name for name in WORKS if name not in ("export", "report --csv"))
HITS = 2  # kills of a case
_STARTS = 12  # after which a case counts as lost
_SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)
_LATEST = 0.95  # of the seconds of an undisturbed command


def do(world: World, kind: str, number: int, seed: int) -> Ended:
    """Do a case."""
    draw = random.Random(f"kills {kind} {number} {seed}")
    expected, seconds = undisturbed(world, kind)
    folder = world.clear()
    call, answer = _call(world, kind, folder), WORKS[kind].answer
    hits: list[str] = []
    for _ in range(_STARTS):
        moment = draw.uniform(0, _LATEST * seconds) if len(hits) < HITS else None
        done = _started(world, call, moment, draw, hits)
        if has_traceback(done):
            return _ended(kind, "traceback", hits, done, folder)
        if (found := answer(folder)) == expected:
            return _ended(kind, "healed" if hits else "same", hits, done, folder)
        if done.code == 0:
            return _ended(kind, "wrong" if found else "lost", hits, done, folder)
    return _ended(kind, "lost", hits, done, folder)


def undisturbed(world: World, kind: str) -> tuple[str, float]:
    """Return what a command leaves, and the seconds it takes; done once in a world."""
    if kind not in world.answers:
        folder = world.clear()
        began = time.monotonic()
        done = world.warm.run(_call(world, kind, folder))
        assert done.code == 0, (kind, done)
        world.answers[kind] = WORKS[kind].answer(folder), time.monotonic() - began
    found: tuple[str, float] = world.answers[kind]
    return found


def _call(world: World, kind: str, folder: Path) -> Call:
    return Call(WORKS[kind].line(world, folder), folder, set=WORKS[kind].set)


def _started(
    world: World, call: Call, moment: float | None, draw: random.Random, hits: list[str]
) -> Called:
    """Do a command, and kill it or one of its processes after `moment` seconds."""
    running = world.warm.start(call)
    if moment is not None:
        time.sleep(moment)
        if name := _strike(running, draw):
            hits.append(f"{name} after {moment:.2f} s")
    return running.end()


def _strike(running: Running, draw: random.Random) -> str:
    """Send a signal; return its name, or "" if the command has ended."""
    with suppress(ProcessLookupError):
        number = draw.choice(_SIGNALS)
        if running.is_alive():
            os.kill(draw.choice(running.processes()), number)
            return number.name
    return ""


def _ended(kind: str, end: str, hits: list[str], done: Called, folder: Path) -> Ended:
    said = f"{done.code} {(done.out + done.err)[-800:]}"
    return Ended(kind, end, ", ".join(hits), said, len(hits), drafts(folder))
