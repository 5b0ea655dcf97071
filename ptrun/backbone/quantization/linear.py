"""A frozen linear map that holds its matrix quantized and makes it dense for each product."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ptrun.backbone.quantization.formats import Quantization, dense, empty, quantize


class QuantizedLinear(nn.Linear):
    """A linear map with a quantized matrix; input, output and bias keep their precision.

    `weight` stays on the meta device: it says shape and precision, and counts the parameters.
    `codes` and `scales` hold the numbers. The bytes of the scales are kept as uint8, because
    `module.to(dtype)` would round floating-point buffers.
    """

    codes: Tensor
    scales: Tensor

    def __init__(self, like: Any, kind: Quantization):
        """Take the place of a linear map or of GPT-2's transposed one (`Conv1D`)."""
        nn.Module.__init__(self)
        self.kind = kind
        self.turned = not isinstance(like, nn.Linear)
        outputs, inputs = reversed(like.weight.shape) if self.turned else like.weight.shape
        self.in_features, self.out_features = inputs, outputs
        shape = torch.empty(outputs, inputs, dtype=like.weight.dtype, device="meta")
        self.weight = nn.Parameter(shape, requires_grad=False)
        self.bias = like.bias
        self._put(*empty(kind, outputs, inputs))

    def hold(self, matrix: Tensor) -> None:
        """Quantize a matrix as it is stored, `[outputs, inputs]` or transposed."""
        self._put(*quantize(self.kind, matrix.T if self.turned else matrix))

    def _put(self, codes: Tensor, scales: Tensor) -> None:
        self.register_buffer("codes", codes)
        self.register_buffer("scales", scales.view(torch.uint8))

    def matrix(self) -> Tensor:
        """Return the dense matrix `[outputs, inputs]` in the precision of `weight`."""
        scales = self.scales.view(torch.float32)
        return dense(self.kind, self.codes, scales, self.weight.shape, self.weight.dtype)

    def forward(self, input: Tensor) -> Tensor:
        """Return `[..., inputs] -> [..., outputs]`."""
        product: Tensor = _product(input, self)
        return product

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Move and cast as every module, but leave `weight` on the meta device."""
        weight = self._parameters.pop("weight")
        assert weight is not None
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        cast = fn(torch.empty(0, dtype=weight.dtype, device=self.codes.device)).dtype
        empty_like = torch.empty_like(weight, dtype=cast)
        self._parameters["weight"] = nn.Parameter(empty_like, requires_grad=False)
        return self


class _Product(torch.autograd.Function):
    """The product, without keeping the dense matrix for the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, module: QuantizedLinear) -> Tensor:
        ctx.module = module
        product = functional.linear(x.reshape(-1, module.in_features), module.matrix(), module.bias)
        return product.view(*x.shape[:-1], module.out_features)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        # As one matrix of rows: a strided gradient `[B, L, D]` would become B small products.
        module, gradient = ctx.module, gradients[0]
        rows = gradient.reshape(-1, module.out_features)
        return (rows @ module.matrix()).view(*gradient.shape[:-1], module.in_features), None


_product: Any = _Product.apply


def replace(model: nn.Module, maps: Mapping[str, Any], kind: Quantization) -> None:
    """Replace linear maps, by their names in the model, by quantized ones that hold nothing yet."""
    made = {id(module): QuantizedLinear(module, kind) for module in maps.values()}
    for name, module in maps.items():
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, made[id(module)])


@contextmanager
def with_devices(model: nn.Module) -> Iterator[None]:
    """Give every `weight` the device of its codes, without memory.

    PEFT puts new tensors on the device of the weights that it finds.
    """
    held = {m: m.weight for m in model.modules() if isinstance(m, QuantizedLinear)}
    for module, weight in held.items():
        number = torch.full((), torch.nan, dtype=weight.dtype, device=module.codes.device)
        module.weight = nn.Parameter(number.expand(weight.shape), requires_grad=False)
    try:
        yield
    finally:
        for module, weight in held.items():
            module.weight = weight
