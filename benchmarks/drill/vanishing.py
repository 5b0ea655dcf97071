"""Folders that are removed while a command runs: its output, or its data and its model."""

import random
import shutil
import time
from pathlib import Path

from benchmarks.drill.ends import Ended, has_traceback, names
from benchmarks.drill.kills import undisturbed
from benchmarks.drill.near import rounded, used
from benchmarks.drill.warm import Call, Called
from benchmarks.drill.works import WORKS
from benchmarks.drill.world import World

KINDS = tuple(name for name in WORKS if name != "report --csv")


def output(world: World, kind: str, number: int, seed: int) -> Ended:
    """Remove the folder of a command while it runs; type it again."""
    draw = random.Random(f"output {kind} {number} {seed}")
    expected, seconds = undisturbed(world, kind)
    folder = world.clear()
    running = world.warm.start(_call(world, kind, folder))
    time.sleep(moment := draw.uniform(0, seconds))
    _remove(folder)
    first = running.end()
    folder.mkdir(exist_ok=True)
    return _judged(world, kind, first, expected, f"after {moment:.2f} s")


def data(world: World, kind: str, number: int, seed: int) -> Ended:
    """Move data and model away while a command runs; bring them back and type it again."""
    draw = random.Random(f"data {kind} {number} {seed}")
    expected, seconds = undisturbed(world, kind)
    running = world.warm.start(_call(world, kind, world.clear()))
    time.sleep(moment := draw.uniform(0, seconds))
    away = world.inputs.with_name("away")
    world.inputs.rename(away)
    first = running.end()
    away.rename(world.inputs)
    return _judged(world, kind, first, expected, f"after {moment:.2f} s")


def _call(world: World, kind: str, folder: Path) -> Call:
    return Call(WORKS[kind].line(world, folder), folder, set=WORKS[kind].set)


def _remove(folder: Path) -> None:
    """Remove what is in a folder, and the folder, while a command writes into it."""
    for _ in range(50):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return


def _fits(kind: str, found: str, expected: str) -> bool:
    """Return whether an answer is the expected one, as far as a removed folder lets it be.

    Members of a group whose process died twice are done one by one. A run that has finished needs
    neither labels nor the prompt it started from.
    """
    near = {"fused group": rounded, "labelling": used, "PPT pre-training": used}.get(kind)
    return found == expected or bool(found and near and near(found, expected))


def _judged(world: World, kind: str, first: Called, expected: str, what: str) -> Ended:
    """Judge a command by what it said, and by what it leaves when it is typed again."""
    answer, folder = WORKS[kind].answer, world.now
    if first.code == 0 and answer(folder) == expected:
        return Ended(kind, "same", what)
    again = world.warm.run(_call(world, kind, folder))
    said = f"{first.code} {first.err[-900:]}\n-- again {again.code} {again.err[-500:]}"
    if has_traceback(first) or has_traceback(again):
        return Ended(kind, "traceback", what, said)
    if not _fits(kind, answer(folder), expected):
        return Ended(kind, "lost" if again.code else "wrong", what, said)
    if first.code not in (0, 1):
        return Ended(kind, "lost", what, said)
    told = "refused" if names(first, world.root) else "unclear"
    ends = "healed" if first.code == 0 else told
    return Ended(kind, ends, what, said)
