"""fairseq's Megatron-11B: XGLM, whose last norm the released file seems not to have.

Not NVIDIA's Megatron-LM. XGLM has the same pre-norm layers, exact GELU, sinusoids from position 2
and embeddings times sqrt(H); whether a norm follows the last layer is what `final_norm` says. Its
attention and its dropouts in the library know neither prefixes nor row keys: they are put in here.
"""

import functools
from typing import Any

from torch import Tensor, nn
from transformers import XGLMConfig, XGLMForCausalLM

from ptrun.backbone.attention import attend
from ptrun.backbone.dropout import KeyedDropout
from ptrun.backbone.injection import Injection

_SITE = 900_000  # dropout sites from here on, beyond those of modules
_WIDE = _SITE + 10_000  # those inside the feed-forward, of which a rank may have a part


class MegatronConfig(XGLMConfig):  # type: ignore[misc]
    """XGLM's configuration, and whether there is a norm after the last layer."""

    model_type = "megatron"
    final_norm: bool = False


class MegatronLM(XGLMForCausalLM):  # type: ignore[misc]
    """XGLM with or without its last norm."""

    config_class = MegatronConfig

    def __init__(self, config: MegatronConfig):
        super().__init__(config)
        if not config.final_norm:
            self.model.layer_norm = nn.Identity()


def connect(body: Any, injection: Injection) -> None:
    """Let attention read prefixes, and dropout the keys of the current pass.

    Prompts stand among raw embeddings, which are scaled with them, as in P-tuning's released code:
    so the table of words does not scale what it gives, the pass does.
    """
    body.embed_tokens.embed_scale = 1.0
    drop = functools.partial(_drop, slot=injection, p=body.dropout)
    drop(body.layers[0], _SITE, before=True)
    body.dropout = 0.0
    for index, layer in enumerate(body.layers):
        attention = layer.self_attn
        attention.forward = functools.partial(_attend, attention)
        drop(attention.out_proj, _SITE + 2 * index + 1)
        drop(layer.fc2, _SITE + 2 * index + 2)
        wide = KeyedDropout(layer.activation_dropout, _WIDE + index, injection)
        wide.cut = True
        _before(layer.fc2, wide)
        layer.dropout = layer.activation_dropout = 0.0


def _drop(module: nn.Module, site: int, *, slot: Injection, p: float, before: bool = False) -> None:
    """Drop cells of what a module puts out, or of what it is given."""
    dropout = KeyedDropout(p, site, slot)
    if before:
        _before(module, dropout)
    else:
        module.register_forward_hook(lambda _module, _given, made: dropout(made))


def _before(module: nn.Module, dropout: KeyedDropout) -> None:
    module.register_forward_pre_hook(lambda _, given: (dropout(given[0]), *given[1:]))


def _attend(
    module: Any,
    hidden: Tensor,
    past_key_values: Any = None,
    attention_mask: Tensor | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """Return attention over prefix and tokens, `[B, T, H]`, and no weights."""
    shape = (*hidden.shape[:2], -1, module.head_dim)
    maps = (module.q_proj, module.k_proj, module.v_proj)
    query, key, value = (project(hidden).view(shape).transpose(1, 2) for project in maps)
    if past_key_values is not None:
        key, value = past_key_values.update(key, value, module.layer_idx)
    p = module.dropout if module.training else 0.0
    made, weights = attend(module, query, key, value, attention_mask, module.scaling, p)
    return module.out_proj(made.flatten(2)), weights
