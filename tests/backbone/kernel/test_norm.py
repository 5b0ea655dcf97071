"""Dropout, residual sum and norm by one program: what torch computes, forward and backward."""

import pytest
import torch
from torch.nn import functional

from ptrun.backbone import launch, norm
from ptrun.backbone.dropout import Keyed, row_keys
from tests.backbone.inputs import passed
from tests.backbone.kernel.comparing import DEVICE, TOLERANCE, assert_close
from tests.backbone.test_attention import loaded
from tests.tiers import package

package("triton")

KEYS = row_keys(1, 2, range(3)).to(DEVICE)
PLACES = torch.arange(7, device=DEVICE)
DROPOUTS = {
    "none": ((3, 7, 64), None),
    "rows": ((3, 7, 64), {}),
    "an uneven width": ((3, 7, 100), {}),
    "a long line": ((3, 2, 2600), {"origin": 3}),
    "tokens": ((1, 7, 48), {"rows": PLACES % 3, "columns": PLACES * 5}),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", DROPOUTS)
def test_output_and_gradients_are_those_of_torch(kind, dtype):
    shape, places = DROPOUTS[kind]
    generator = torch.Generator().manual_seed(1)
    x, residual, pull = torch.randn(3, *shape, generator=generator).to(DEVICE, dtype)
    module = torch.nn.LayerNorm(shape[-1], eps=1e-3, device=DEVICE, dtype=dtype)
    module.weight.data, module.bias.data = pull[0, 0] + 1, x[0, 0]
    module.requires_grad_(False)
    leaves = x.requires_grad_(), residual.requires_grad_()
    keyed = None if places is None else Keyed(KEYS, 5, 0.3, **places)

    def plain(x, residual):
        numbers = (shape[-1],), module.weight.float(), module.bias.float(), module.eps
        return functional.layer_norm((keyed(x) if keyed else x) + residual, *numbers)

    with launch.use(True):
        assert norm.suits(x, residual, module)
        out = norm.add_norm(x, residual, module, keyed)
        slopes = torch.autograd.grad(out, leaves, pull)
        assert torch.equal(norm.add_norm(x.detach(), residual.detach(), module, keyed), out)
    wide = [t.detach().float().requires_grad_() for t in leaves]
    expected = plain(*wide)
    wide_slopes = torch.autograd.grad(expected, wide, pull.float())
    assert_close([out, *slopes], [expected, *wide_slopes], TOLERANCE[dtype])
    assert torch.equal(slopes[0] == 0, wide_slopes[0] == 0)


def test_what_the_program_does_not_compute():
    x, module = torch.ones(2, 4), torch.nn.LayerNorm(4).requires_grad_(False)
    assert not norm.suits(x, x, module)  # on a CPU
    with launch.use(True):
        assert norm.suits(x, x, module)
        assert not norm.suits(x, x.double(), module)
        assert not norm.suits(x.bfloat16(), x.bfloat16(), module)
        assert not norm.suits(x, x, torch.nn.RMSNorm(4))
        assert not norm.suits(x, x, module.requires_grad_(True))


@pytest.mark.parametrize("wrong", [{}, {"N": 32}, {"eps": 1.0}, {"limit": 0}])
def test_the_probe_tells_a_wrong_program(monkeypatch, wrong):
    start = launch.start
    monkeypatch.setattr(
        launch, "start", lambda name, n, given, *rest, **more: start(
            name, n, given | wrong, *rest, **more
        )
    )  # fmt: skip
    right = norm.error(torch.device(DEVICE), torch.float32) <= 1  # nan is wrong
    assert right != bool(wrong)


@pytest.mark.parametrize("kind", ["bert", "deberta-v2"])
def test_both_halves_of_each_layer_end_in_the_program(tiny_folder, monkeypatch, kind):
    backbone, started = loaded(tiny_folder, kind), []
    monkeypatch.setattr(launch, "start", lambda name, *_, **__: started.append(name))
    with launch.use(True):
        passed(backbone, keyed=True)
    layers = backbone.shape.layers
    assert started.count("normed") == started.count("norm_slopes") == 2 * layers
