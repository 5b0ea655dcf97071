"""The kernels compile for GPUs that are not here, and attention keeps no scores."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ptrun.backbone.base import Prefix
from ptrun.backbone.kernel import Keyed, Terms, attention
from ptrun.planning.trace import Live
from tests.tiers import package

package("triton")

LIMITS = {86: 99 * 2**10, 90: 227 * 2**10}
"""The most shared memory of a program, in bytes, by compute capability."""


def peak(tokens):
    """Return the most bytes at once, beside the inputs, of attention and its gradients."""
    rows, heads, length, width = 16, 16, 100, 64
    with torch.device("meta"):
        sizes = (tokens, tokens, tokens, length, length)
        given = [torch.empty(rows, heads, n, width, dtype=torch.bfloat16) for n in sizes]
        keys = torch.empty(rows, dtype=torch.int64)
        mask = torch.empty(rows, 1, tokens, tokens, dtype=torch.bool)
    query, key, value, before, old = (own.requires_grad_() for own in given)
    with Live([*given, keys, mask]) as live:
        terms = Terms(0.1, mask, dropout=Keyed(keys, 1, 0.1))
        out = attention(query, key, value, Prefix(before, old), terms)
        torch.autograd.grad(out, given, torch.empty_like(out))
    return live.peak


def test_no_scores_are_in_memory_forward_or_backward():
    """On the meta device the same tensors are made: their size grows with the tokens alone."""
    short, long = peak(512), peak(8 * 512)
    assert short < 2 * 16 * 16 * 512 * (100 + 512)  # the bytes of the scores in bf16
    assert long < 8 * short


@pytest.mark.slow
@pytest.mark.parametrize("capability", LIMITS)
def test_the_kernels_compile_for_gpus(tmp_path, capability):
    """Triton's compiler needs no GPU; it runs in a process without the interpreter."""
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    code = f"from tests.backbone.kernel import compiling; compiling.report({capability})"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        env=environment,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 0, done.stderr[-2000:]
    needs = [line.split() for line in done.stdout.splitlines() if line.startswith("kernel ")]
    assert len(needs) == 15
    assert all(int(shared) <= LIMITS[capability] for *_, shared in needs), needs
