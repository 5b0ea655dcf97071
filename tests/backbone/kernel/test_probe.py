"""The probe of a device: small where the kernel is right, large where it is not."""

import pytest
import torch

from ptrun.backbone import kernel
from tests.backbone.kernel.comparing import DEVICE, exact_products
from tests.tiers import package

package("triton")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", list(kernel.TOLERANCE))
def test_a_working_kernel_is_within_its_tolerance(monkeypatch, dtype):
    exact_products(monkeypatch)
    assert kernel.error(torch.device(DEVICE), dtype, 16) < 0.5


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [{"boost": 1.0}, {"limit": 0}, {"scale": 0.3}])
def test_a_wrong_kernel_is_not(monkeypatch, wrong):
    whole = kernel.Launch._arguments
    monkeypatch.setattr(
        kernel.Launch, "_arguments", lambda own, *, backward: whole(own, backward=backward) | wrong
    )
    assert kernel.error(torch.device(DEVICE), torch.float32, 16) > 2
