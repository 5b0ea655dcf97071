"""The kernels compile for GPUs that are not here, and attention keeps no scores."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ptrun.backbone.base import Prefix
from ptrun.backbone.kernel import Keyed, Terms, attention
from tests.tiers import package

package("triton")

LIMITS = {86: 99 * 2**10, 90: 227 * 2**10}
"""The most shared memory of a program, in bytes, by compute capability."""


class Largest(TorchDispatchMode):
    """Notes the most numbers of a tensor that is made."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else (made,):
            if isinstance(tensor, torch.Tensor):
                self.numbers = max(self.numbers, tensor.numel())
        return made


def test_no_scores_are_in_memory_forward_or_backward():
    """On the meta device the same tensors are made: none has a number for each query and key."""
    rows, heads, tokens, length, width = 16, 16, 512, 100, 64
    with torch.device("meta"):
        sizes = (tokens, tokens, tokens, length, length)
        given = [torch.empty(rows, heads, n, width, dtype=torch.bfloat16) for n in sizes]
        keys = torch.empty(rows, dtype=torch.int64)
        mask = torch.empty(rows, 1, tokens, tokens, dtype=torch.bool)
    query, key, value, before, old = (tensor.requires_grad_() for tensor in given)
    with Largest() as largest:
        terms = Terms(0.1, mask, dropout=Keyed(keys, 1, 0.1))
        out = attention(query, key, value, Prefix(before, old), terms)
        torch.autograd.grad(out, given, torch.empty_like(out))
    assert largest.numbers == query.numel() < rows * heads * tokens * tokens


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
