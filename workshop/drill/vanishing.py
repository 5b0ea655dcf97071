"""Folders that are removed while a command runs: its output, or its data and its model.

An answer may then differ in rounding, or in what was removed and is not needed any more.
"""

import json
import math
import random
import shutil
import time
from itertools import chain
from pathlib import Path

import torch
from safetensors.torch import load

from workshop.drill.ends import Ended, has_traceback, names
from workshop.drill.kills import undisturbed
from workshop.drill.warm import Call, Called
from workshop.drill.works import WORKS
from workshop.drill.world import World

KINDS = tuple(name for name in WORKS if name != "report --csv")
_TOLERANCE = 1e-3
"""Of losses and tensors of runs that shared passes with other members, or with none. A step may
amplify the rounding of the step before."""


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


def used(found: str, expected: str) -> bool:
    """Return whether runs are those expected, though what they were made from may be gone.

    That is labels, which a cache holds, and prompts that were pre-trained.
    """
    (runs, shards), (wanted, known) = json.loads(found), json.loads(expected)
    needed = {name for name in wanted if "ppt_nsp" not in name}
    same = all(wanted.get(name) == run for name, run in runs.items())
    return same and needed <= runs.keys() and set(shards) <= set(known)


def rounded(found: str, expected: str) -> bool:
    """Return whether runs are those expected, to within the rounding of shared passes."""
    (runs, _), (wanted, _) = json.loads(found), json.loads(expected)
    return runs.keys() == wanted.keys() and all(_near(runs[name], wanted[name]) for name in runs)


def _near(one: str, other: str) -> bool:
    """Return whether two runs have equal metrics, and nearly equal journals and tensors."""
    if "nothing" in (one, other):
        return False
    mine, theirs = json.loads(one), json.loads(other)
    prompts = [load(bytes.fromhex(own[2])) for own in (mine, theirs)]
    rows = [list(map(json.loads, own[1].splitlines())) for own in (mine, theirs)]
    return mine[0] == theirs[0] and _same_rows(*rows) and _same_tensors(*prompts)


def _same_rows(mine: list[dict[str, object]], theirs: list[dict[str, object]]) -> bool:
    if [row.keys() for row in mine] != [row.keys() for row in theirs]:
        return False
    pairs = chain.from_iterable(
        ((row[key], other[key]) for key in row if key != "digest")
        for row, other in zip(mine, theirs, strict=True)
    )
    return all(a == b or _are_near(a, b) for a, b in pairs)


def _are_near(a: object, b: object) -> bool:
    if not (isinstance(a, float) and isinstance(b, float)):
        return False
    return math.isclose(a, b, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)


def _same_tensors(mine: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> bool:
    return mine.keys() == theirs.keys() and all(
        torch.allclose(mine[name], theirs[name], rtol=_TOLERANCE, atol=_TOLERANCE) for name in mine
    )
