"""One attention by the kernel and by the plain path, on a GPU or in Triton's interpreter."""

import torch

from ptrun.backbone import attention as plain
from ptrun.backbone import dropout
from ptrun.backbone.base import Prefix
from ptrun.backbone.dropout import Keyed
from ptrun.backbone.kernel import Terms, attention
from tests.backbone.inputs import DEVICE
from tests.tiers import package

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}
SITE = 5


def exact_products(monkeypatch):
    """Make the interpreter multiply bf16 numbers; Triton 3.9 multiplies their bits as integers.

    The check of overflow is switched off, as in a launch on a GPU: it takes a third of the time.
    """
    package("triton")
    import triton.language as tl
    from triton.runtime import interpreter

    whole = interpreter.InterpreterBuilder.create_dot

    def widened(handle):
        if handle.dtype != tl.bfloat16:
            return handle
        bits = handle.data.astype("uint32") << 16
        return interpreter.TensorHandle(bits.view("float32"), tl.float32)

    def create_dot(self, a, b, *rest):
        return whole(self, widened(a), widened(b), *rest)

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", create_dot)
    options = interpreter.InterpreterOptions(sanitize_overflow=False)
    monkeypatch.setattr(interpreter.interpreter_builder, "options", options)


def vectors(heads, lengths, width, dtype, rows=2):
    """Return leaf vectors `[B, heads, n, d]`, with heads beside each other as models have them."""
    generator = torch.Generator().manual_seed(3)
    made = (
        torch.randn(rows, n, own, width, generator=generator)
        for own, n in zip(heads, lengths, strict=False)
    )
    return [t.to(DEVICE, dtype).transpose(1, 2).requires_grad_() for t in made]


def both(given, dtype, *, mask=None, seen=None, bias=None, p=0.0):
    """Return output and gradients of the kernel, and those of the plain path in fp32.

    `given` are queries, keys, values and, if there is a prefix, its keys and values.
    """
    rows, width = given[0].shape[0], given[0].shape[3]
    keys = dropout.row_keys(1, 2, range(rows)).to(DEVICE)
    terms = Terms(width**-0.5, mask, bias, None, Keyed(keys, SITE, p) if p else None)
    wide = None if bias is None else bias.float()
    by_row = None if mask is None else mask.expand(rows, -1, -1, -1)

    def kernel(query, key, value, *prefix):
        return attention(query, key, value, Prefix(*prefix, seen) if prefix else None, terms)

    def drop(weights, origin):
        return dropout.drop(weights, keys, SITE, p, origin)

    def reference(query, key, value, *prefix):
        own = Prefix(*prefix, seen) if prefix else None
        rest = by_row, drop if p else None, plain.Form(bias=wide)
        return plain._attend(own, query, key, value, *rest).transpose(1, 2)

    whole = [t.detach().float().requires_grad_() for t in given]
    return differentiated(kernel, given), differentiated(reference, whole)


def differentiated(attend, given):
    out = attend(*given)
    pull = torch.linspace(-1, 1, out.numel(), device=out.device).view_as(out).sin()
    return [out, *torch.autograd.grad(out, given, pull.to(out.dtype))]


def assert_close(found, wanted, tolerance):
    """Compare each tensor with its own largest number."""
    assert len(found) == len(wanted)
    for own, other in zip(found, wanted, strict=True):
        largest = float(other.detach().abs().max())
        torch.testing.assert_close(own.float(), other, rtol=0, atol=tolerance * largest)
