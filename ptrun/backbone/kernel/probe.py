"""One small attention by the kernel and by torch: does the kernel work on a device?"""

from collections.abc import Callable

import torch
from torch import Tensor

from ptrun.backbone.base import Prefix
from ptrun.backbone.dropout import drop
from ptrun.backbone.kernel.attention import attention
from ptrun.backbone.kernel.launch import Keyed, Terms

TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 3e-2}
"""The largest difference, as a share of the largest number of an output or a gradient."""

_TF32 = 3e-3
"""The tolerance in fp32 where torch may round products to TF32."""

_ROWS, _HEADS, _TOKENS, _PROMPT, _SITE, _P = 2, 2, 80, 3, 0, 0.1
"""80 tokens use the largest tiles."""

_Attend = Callable[[list[Tensor], Tensor, Tensor], Tensor]


def error(device: torch.device, dtype: torch.dtype, width: int) -> float:
    """Return how far the kernel is from torch, over the output and all gradients.

    1 is the tolerance of the type. `width` is the head size.
    """
    lengths = (_TOKENS, _TOKENS, _TOKENS, _PROMPT, _PROMPT)
    given = [_vectors(length, width, 0.7 + n, device) for n, length in enumerate(lengths)]
    given = [own.to(dtype) for own in given]
    found = _differentiated(_by_kernel, given, dtype)
    wanted = _differentiated(_by_torch, given, torch.float64)
    far = [_distance(own, other) for own, other in zip(found, wanted, strict=True)]
    rounds = dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest"
    return max(far) / (_TF32 if rounds else TOLERANCE[dtype])


def _vectors(length: int, width: int, pace: float, device: torch.device) -> Tensor:
    """Return fixed vectors `[B, heads, length, d]`, without torch's random numbers."""
    numbers = torch.arange(_ROWS * _HEADS * length * width, dtype=torch.float64) * pace
    return numbers.sin().view(_ROWS, _HEADS, length, width).to(device)


def _differentiated(attend: _Attend, given: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Return the output `[B, T, heads, d]` and the gradients of all vectors."""
    vectors = [own.to(dtype).requires_grad_(True) for own in given]
    keys = torch.arange(_ROWS, device=given[0].device)
    ends = _TOKENS - 9 * keys
    real = (torch.arange(_TOKENS, device=keys.device) < ends[:, None])[:, None, None]
    out = attend(vectors, keys, real)
    weights = given[0].transpose(1, 2).to(dtype)
    return [out, *torch.autograd.grad(out, vectors, weights)]


def _by_kernel(vectors: list[Tensor], keys: Tensor, real: Tensor) -> Tensor:
    query, key, value, before, old = vectors
    terms = Terms(query.shape[-1] ** -0.5, real, dropout=Keyed(keys, _SITE, _P))
    return attention(query, key, value, Prefix(before, old), terms)


def _by_torch(vectors: list[Tensor], keys: Tensor, real: Tensor) -> Tensor:
    query, key, value, before, old = vectors
    key, value = torch.cat([before, key], dim=2), torch.cat([old, value], dim=2)
    scores = query @ key.transpose(2, 3) * query.shape[-1] ** -0.5
    scores[..., _PROMPT:].masked_fill_(~real, -torch.inf)
    weights = scores.softmax(dim=-1)
    used = drop(weights, keys, _SITE, _P, origin=_PROMPT)
    return (used @ value).transpose(1, 2)


def _distance(own: Tensor, other: Tensor) -> float:
    """Return the largest difference, as a share of the largest number; nan if one is nan."""
    return float((own.detach() - other.detach()).abs().max() / other.detach().abs().max())
