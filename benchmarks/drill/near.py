"""Answers that differ in rounding, or in what was removed and is not needed any more."""

import json
import math
from itertools import chain

import torch
from safetensors.torch import load

_TOLERANCE = 1e-3
"""Of losses and tensors of runs that shared passes with other members, or with none. A step may
amplify the rounding of the step before."""


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
        ((row[key], other[key]) for key in row if key != "crc")
        for row, other in zip(mine, theirs, strict=True)
    )
    return all(a == b or _are_near(a, b) for a, b in pairs)


def _are_near(a: object, b: object) -> bool:
    both = isinstance(a, float) and isinstance(b, float)
    return both and math.isclose(a, b, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)


def _same_tensors(mine: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> bool:
    return mine.keys() == theirs.keys() and all(
        torch.allclose(mine[name], theirs[name], rtol=_TOLERANCE, atol=_TOLERANCE) for name in mine
    )
