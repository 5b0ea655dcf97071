"""Dropout by one program: the cells and gradients of torch's path, and nothing is kept."""

import logging

import pytest
import torch

from ptrun.backbone import dropout, launch
from ptrun.backbone.dropout import Keyed, row_keys
from tests.backbone.kernel.comparing import DEVICE
from tests.tiers import package

package("triton")

KEYS = row_keys(1, 2, range(4)).to(DEVICE)
COLUMNS = torch.arange(23, device=DEVICE)
PLACES = {"rows": COLUMNS * 7 % 4, "columns": COLUMNS * 5}
KINDS = {
    "rows": ((4, 300), {"origin": -5}),
    "one axis": ((4, 9, 16), {"start": 3}),
    "two axes": ((4, 3, 5, 21), {"origin": 7, "start": 2}),
    "tokens": ((1, 23, 40), PLACES),
    "tokens of a rank": ((23, 257), {"origin": -257, **PLACES}),
}


def differentiated(keyed, x):
    x = x.clone().requires_grad_()
    out = keyed(x)
    return out.detach(), *torch.autograd.grad(out, x, x.detach().flip(-1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", KINDS)
def test_a_program_drops_what_torch_drops(kind, dtype):
    shape, places = KINDS[kind]
    keyed = Keyed(KEYS, 5, 0.3, **places)
    x = torch.arange(torch.Size(shape).numel(), device=DEVICE).view(shape)
    x = 2 ** (x % 9).to(dtype)  # products are exact: the interpreter cuts off bits of bf16
    with launch.use(False):
        expected = differentiated(keyed, x)
    saved = []
    hooks = torch.autograd.graph.saved_tensors_hooks(saved.append, lambda t: t)
    with launch.use(True), hooks:
        computed = differentiated(keyed, x)
    assert all(torch.equal(*pair) for pair in zip(computed, expected, strict=True))
    assert 0 < float((computed[0] != 0).float().mean()) < 1 and not saved


@pytest.mark.parametrize("wrong", [{}, {"site": 4}, {"begin": 0}, {"PACKED": False}])
def test_a_program_that_drops_other_cells_is_not_used(monkeypatch, caplog, wrong):
    arguments = Keyed.arguments
    monkeypatch.setattr(Keyed, "arguments", lambda own, x: arguments(own, x) | wrong)
    launch.agrees.cache_clear()
    with caplog.at_level(logging.WARNING, "ptrun"):
        device = torch.device(DEVICE)
        agrees = launch.agrees("dropout", dropout.differs, device, torch.float32)
        assert agrees is not bool(wrong)
    launch.agrees.cache_clear()
    assert ("plain dropout is used" in caplog.text) == bool(wrong)
