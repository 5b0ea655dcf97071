"""DeBERTa's attention with a prefix against the library's own scores, written out."""

from dataclasses import replace

import pytest
import torch

from ptrun.backbone.base import Prefix
from tests.backbone.inputs import LENGTHS, text


@pytest.mark.parametrize("kind", ["deberta", "deberta-v2"])
def test_a_prefix_key_scores_by_content_alone(tiny, kind, monkeypatch):
    """Scores of the text are the library's; the prefix adds q k / sqrt(3 d): c2p and p2c count."""
    backbone = tiny(kind)
    shape, given = backbone.shape, text(backbone)
    module = backbone.model.base_model.encoder.layer[0].attention.self
    seen = []
    handle = module.register_forward_hook(lambda _m, a, out: seen.append((a[0], out[0])))
    options = []
    inner = module.forward
    module.forward = lambda *a, **k: options.append((a, k)) or inner(*a, **k)
    key, value = torch.randn(2, len(LENGTHS), shape.heads, 4, shape.head_size)
    backbone.forward(replace(given, prefixes=(Prefix(key, value), None, None)))
    handle.remove()
    hidden, found = seen[0]
    scores = []
    softmax = torch.nn.functional.softmax
    monkeypatch.setattr(
        torch.nn.functional, "softmax", lambda s, dim: scores.append(s) or softmax(s, dim=dim)
    )
    arguments, named = options[0]
    type(module).forward(module, *arguments, **named)  # the library's own, without a prefix
    query, values = _content(module, kind, hidden)
    own = query @ key.transpose(2, 3) / (3 * shape.head_size) ** 0.5
    weights = torch.cat([own, scores[0].view(*own.shape[:3], -1)], dim=-1).softmax(-1)
    expected = (weights @ torch.cat([value, values], dim=2)).transpose(1, 2).flatten(2)
    torch.testing.assert_close(found[given.mask], expected[given.mask], atol=1e-5, rtol=0)


def _content(module, kind, hidden):
    """Return queries and values `[B, heads, T, d]` from the module's weights."""
    heads = module.num_attention_heads
    if kind == "deberta-v2":
        parts = (module.query_proj(hidden), module.value_proj(hidden))
        return [p.unflatten(-1, (heads, -1)).transpose(1, 2) for p in parts]
    fused = module.in_proj(hidden).unflatten(-1, (heads, 3, -1))  # each head: query, key, value
    biases = [b.view(heads, 1, -1) for b in (module.q_bias, module.v_bias)]
    parts = (fused[..., 0, :], fused[..., 2, :])
    return [p.transpose(1, 2) + b for p, b in zip(parts, biases, strict=True)]
