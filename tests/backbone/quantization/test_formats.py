"""int8 and nf4: codes, scales, sizes and errors, against closed forms and torchao's error."""

import pytest
import torch

from ptrun.backbone import quantization
from ptrun.errors import UserError
from tests.tiers import package

NF4 = [-1.0, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.09105004, 0.0]
NF4 += [0.07958030, 0.16093020, 0.24611230, 0.33791524, 0.44070983, 0.56261700, 0.72295684, 1.0]


@pytest.fixture
def matrix():
    return torch.randn(48, 80, generator=torch.Generator().manual_seed(5)) * 0.02


def held(kind, matrix):
    codes, scales = quantization.quantize(kind, matrix)
    return quantization.dense(kind, codes, scales, matrix.shape, torch.float32)


def test_int8_is_within_half_a_step_of_each_row(matrix):
    step = matrix.abs().amax(dim=1, keepdim=True) / 127
    assert ((held("int8", matrix) - matrix).abs() <= 0.5001 * step).all()


def test_a_row_of_zeros_stays_zero():
    assert not held("int8", torch.zeros(3, 8)).any()


def test_nf4_takes_the_nearest_level_of_its_block(matrix):
    package("bitsandbytes")
    levels, blocks = torch.tensor(NF4), matrix.reshape(-1, 64)
    largest = blocks.abs().amax(dim=1, keepdim=True)
    nearest = ((blocks / largest)[..., None] - levels).abs().argmin(dim=-1)
    torch.testing.assert_close(
        held("nf4", matrix), (levels[nearest] * largest).reshape(matrix.shape), rtol=1e-5, atol=1e-7
    )


@pytest.mark.parametrize("shape", [(32, 32), (48, 16), (33, 7), (100, 96), (64, 128)])
def test_nf4_is_as_exact_for_rows_that_are_no_whole_number_of_blocks(shape):
    """bitsandbytes' kernel for AVX-512 takes a wrong scale where a block begins inside a row."""
    package("bitsandbytes")
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    assert (held("nf4", matrix) - matrix).abs().mean() < 0.09


@pytest.mark.parametrize("kind", ["int8", "nf4"])
@pytest.mark.parametrize("shape", [(48, 80), (7, 5), (1, 64)])
def test_shapes_on_the_meta_device_are_those_of_tensors(kind, shape):
    if kind == "nf4":
        package("bitsandbytes")
    for own, other in zip(
        quantization.empty(kind, *shape),
        quantization.quantize(kind, torch.randn(shape)),
        strict=True,
    ):
        assert (own.shape, own.dtype) == (other.shape, other.dtype)


def test_bytes_are_those_of_the_tensors():
    for kind, each in quantization.BYTES.items():
        codes, scales = quantization.empty(kind, 1024, 4096)
        size = sum(t.numel() * t.element_size() for t in (codes, scales))
        assert size / (1024 * 4096) == pytest.approx(each, rel=2e-3)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(quantization, "find_spec", lambda _: None)
    quantization.check_installed("int8")
    with pytest.raises(UserError, match=r"needs the package bitsandbytes; type pip install"):
        quantization.check_installed("nf4")
