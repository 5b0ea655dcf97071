"""The kernels compile for cards that are not here, within their limits."""

import os
import subprocess
import sys

import pytest

from tests.tiers import package

PROGRAM = """\
from tests.cuda.compiled import LIMITS, Case, compiled
for one in compiled(Case({sm}, "{type}", {head}, "{has}")):
    assert "error" not in one, one
    assert one["shared"] <= 1024 * LIMITS[{sm}] and one["registers"] <= 255, one
    print(one["kernel"])
"""

ATTENTION = ["forward", "deltas", "queries", "keys", "prefix"]
LINES = ["dropped"] * 3 + ["normed", "norm_slopes"] * 2


CASES = [
    ("bf16", 64, "packed prefix drop", ATTENTION),
    ("bf16", 256, "prefix drop", ATTENTION),
    ("fp32", 64, "prefix bias drop", ATTENTION),
    ("bf16", 768, "lines", LINES),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sm", "type_", "head", "has", "kernels"),
    [(sm, *case) for i, case in enumerate(CASES) for sm in (90, (80, 86)[i % 2])],
)
def test_the_kernels_compile(sm, type_, head, has, kernels, tmp_path):
    """Triton's compiler needs no GPU; it runs in a process without the interpreter."""
    package("triton")
    env = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "0"}
    line = [sys.executable, "-c", PROGRAM.format(sm=sm, type=type_, head=head, has=has)]
    ran = subprocess.run(line, env=env, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == kernels
