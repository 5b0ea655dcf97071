"""The attention kernels compile for cards that are not here, within their limits."""

import os
import subprocess
import sys

import pytest

from tests.tiers import package

PROGRAM = """\
from tests.cuda.compiled import LIMITS, Case, compiled
for one in compiled(Case({sm}, "bf16", 64, "packed prefix drop")):
    assert "error" not in one, one
    assert one["shared"] <= 1024 * LIMITS[{sm}] and one["registers"] <= 255, one
    print(one["kernel"])
"""


@pytest.mark.slow
@pytest.mark.parametrize("sm", [80, 90])
def test_the_kernels_compile(sm, tmp_path):
    package("triton")
    env = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "0"}
    line = [sys.executable, "-c", PROGRAM.format(sm=sm)]
    ran = subprocess.run(line, env=env, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["forward", "deltas", "queries", "keys", "prefix"]
