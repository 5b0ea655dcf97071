"""Model classes that transformers lacks: GLM's block positions, fairseq's Megatron-11B."""

import functools
from typing import Any

from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel, XGLMConfig, XGLMForCausalLM

from ptrun.backbone.attention import attend
from ptrun.backbone.injection import Injection, KeyedDropout

# GLM-2B and GLM-10B: GPT-2's stack with a second table of positions (Du et al. 2022, §2).
#
# The name is that of the authors' files; `glm` in transformers is another model (GLM-4). Token t of
# the context has the positions (t, 0). Token j = 1, 2, ... of the answer has (position of the
# blank, j). The caller passes a mask `[B, 1, T, S]`, which GPT-2 uses unchanged.


class BlockConfig(GPT2Config):  # type: ignore[misc]
    """GPT-2's configuration under another name.

    >>> from ptrun.papers.models import BlockConfig
    >>> BlockConfig(n_layer=1).model_type
    'blocklm'
    """

    model_type = "blocklm"


class BlockLM(GPT2LMHeadModel):  # type: ignore[misc]
    """GPT-2 with a second position table `transformer.wbe [positions, H]`, for the answer.

    >>> from ptrun.papers.models import BlockConfig, BlockLM
    >>> config = BlockConfig(n_layer=1, n_embd=8, n_head=2, n_positions=16, vocab_size=32)
    >>> BlockLM(config).transformer.wbe.weight.shape
    torch.Size([16, 8])
    """

    config_class = BlockConfig

    def __init__(self, config: BlockConfig):
        super().__init__(config)
        self.transformer.wbe = nn.Embedding(config.n_positions, config.n_embd)
        nn.init.normal_(self.transformer.wbe.weight, std=config.initializer_range)

    def hidden(self, embeddings: Tensor, places: Tensor, inside: Tensor, **rest: Any) -> Any:
        """Return the output of GPT-2's body, with its options `attention_mask` and `use_cache`.

        `embeddings [B, T, H]` are raw. `places [B, T]` are positions in the text, `inside [B, T]`
        those inside the answer, 0 for the context.
        """
        states = embeddings + self.transformer.wbe(inside)
        return self.transformer(inputs_embeds=states, position_ids=places, **rest)


# fairseq's Megatron-11B (not NVIDIA's Megatron-LM), built on XGLM.
#
# XGLM has the same pre-norm layers, exact GELU, sinusoids from position 2 and embeddings times
# sqrt(H). `final_norm` is False because the released file seems to lack the norm after the last
# layer. This module adds prefixes and row keys to the library's attention and dropouts.

_SITE = 900_000  # first dropout site, beyond those of modules
_WIDE = _SITE + 10_000  # first site inside the feed-forward, which ranks may divide


class MegatronConfig(XGLMConfig):  # type: ignore[misc]
    """XGLM's configuration with `final_norm`, the norm after the last layer.

    >>> from ptrun.papers.models import MegatronConfig
    >>> MegatronConfig().final_norm
    False
    """

    model_type = "megatron"
    final_norm: bool = False


class MegatronLM(XGLMForCausalLM):  # type: ignore[misc]
    """XGLM with or without its last norm.

    >>> from ptrun.papers.models import MegatronConfig, MegatronLM
    >>> sizes = {"d_model": 8, "ffn_dim": 8, "attention_heads": 2, "vocab_size": 32}
    >>> config = MegatronConfig(num_layers=1, **sizes)
    >>> MegatronLM(config).model.layer_norm
    Identity()
    """

    config_class = MegatronConfig

    def __init__(self, config: MegatronConfig):
        super().__init__(config)
        if not config.final_norm:
            self.model.layer_norm = nn.Identity()


def connect(body: Any, injection: Injection) -> None:
    """Make attention read prefixes, and dropout the keys of the current pass.

    Prompts are scaled with the raw embeddings, as in P-tuning's released code. So the family scales
    both, not the embedding table.
    """
    body.embed_tokens.embed_scale = 1.0
    _drop_inputs(body.layers[0], KeyedDropout(body.dropout, _SITE, injection))
    for index, layer in enumerate(body.layers):
        attention = layer.self_attn
        attention.forward = functools.partial(_attend, attention)
        for module, site in ((attention.out_proj, 2 * index + 1), (layer.fc2, 2 * index + 2)):
            dropout = KeyedDropout(body.dropout, _SITE + site, injection)
            module.register_forward_hook(lambda _m, _i, output, drop=dropout: drop(output))
        wide = KeyedDropout(layer.activation_dropout, _WIDE + index, injection)
        wide.cut = True
        _drop_inputs(layer.fc2, wide)
        layer.dropout = layer.activation_dropout = 0.0
    body.dropout = 0.0


def _drop_inputs(module: nn.Module, dropout: KeyedDropout) -> None:
    module.register_forward_pre_hook(lambda _, inputs: (dropout(inputs[0]), *inputs[1:]))


def _attend(
    module: Any, hidden: Tensor, attention_mask: Tensor | None = None, **_: object
) -> tuple[Tensor, None]:
    """Return attention over prefix and tokens, `[B, T, H]`, and no weights."""
    shape = (*hidden.shape[:2], -1, module.head_dim)
    maps = (module.q_proj, module.k_proj, module.v_proj)
    query, key, value = (project(hidden).view(shape).transpose(1, 2) for project in maps)
    p = module.dropout if module.training else 0.0
    out = attend(module, query, key, value, attention_mask, module.scaling, p)[0]
    return module.out_proj(out.flatten(2)), None
