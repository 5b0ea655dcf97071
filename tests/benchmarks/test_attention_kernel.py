"""The benchmark of the attention kernel runs on a CPU, and checks numerics there."""

import sys
from pathlib import Path

import pytest

from tests.tiers import package

package("triton")


@pytest.mark.slow
def test_the_small_benchmark_finds_no_difference(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import attention_kernel

    try:
        found = attention_kernel.report(small=True)
    finally:
        sys.modules.pop("attention_kernel")
    assert set(found["cases"]) == set(attention_kernel.CASES)
    for figures in found["cases"].values():
        assert 0 < figures["kernel"]["error"] < 1e-5
