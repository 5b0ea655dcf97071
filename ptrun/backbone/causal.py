"""The left-to-right models: GPT-2, models shaped like Llama (Mistral, Qwen), and Megatron-11B.

A token sees itself, the tokens before it and every prefix. There are no segment ids.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ptrun.backbone.base import BackboneInput, Shape
from ptrun.backbone.family import (
    GPT2,
    LLAMA,
    MEGATRON,
    NO_STOCK,
    Family,
    Stock,
    SwitchFields,
    raw_words,
    read,
    read_order,
)
from ptrun.backbone.injection import Injection, Paths
from ptrun.backbone.packing import Packing, Visible

GPT2_PATHS = Paths("h", "attn", "attn.c_proj", "mlp.c_proj")
_LLAMA = Paths("layers", "self_attn", "self_attn.o_proj", "mlp.down_proj")
_MEGATRON = Paths("layers", "self_attn", "self_attn.out_proj", "fc2")
_WORDS = ("AutoModelForCausalLM", "CAUSAL_LM")
_STOCK = Stock(_WORDS, tags="score")


def look_back(mask: Tensor) -> Tensor:
    """Return which keys each token sees, `[B, T] -> [B, 1, T, T]`.

    Padding sees itself: a softmax over no keys is NaN.
    """
    width = mask.shape[1]
    before = torch.ones(width, width, dtype=torch.bool, device=mask.device).tril()
    itself = torch.eye(width, dtype=torch.bool, device=mask.device)
    return ((before & mask[:, None, :]) | itself)[:, None]


@dataclass(frozen=True)
class Decoder(Family):
    """One left-to-right architecture."""

    paths: Paths = _LLAMA
    name: str = "causal"
    fields: SwitchFields = LLAMA
    visible: Visible | None = look_back
    left_to_right: bool = True
    stock: Stock = _STOCK

    def shape(self, config: Any) -> Shape:
        """Return the sizes; a sliding window limits the length, since our masks have none."""
        heads = config.num_attention_heads
        window = getattr(config, "sliding_window", None) or config.max_position_embeddings
        return Shape(
            hidden_size=config.hidden_size,
            embedding_size=config.hidden_size,
            layers=config.num_hidden_layers,
            heads=getattr(config, "num_key_value_heads", None) or heads,
            head_size=getattr(config, "head_dim", None) or config.hidden_size // heads,
            positions=min(config.max_position_embeddings, window),
            dropout=getattr(config, "resid_pdrop", getattr(config, "dropout", 0.0)),
        )

    def hidden(self, model: Any, given: BackboneInput, packing: Packing | None) -> Tensor:
        """Return the last hidden states `[B, T, H]`, or those of packed tokens."""
        # a mask with four axes is not changed by the library; attention ignores it if packed
        mask = look_back(given.mask if packing is None else given.mask[:1, :1])
        hidden: Tensor = self.body(model)(
            **read(given, packing, position_ids=read_order(given.mask, given.shift)),
            attention_mask=mask,
            use_cache=False,
        ).last_hidden_state
        return hidden


class Megatron(Decoder):
    """Megatron-11B, built on XGLM: raw embeddings and prompts are scaled together."""

    def prepare(self, model: Any, injection: Injection) -> None:
        """Connect the layers, their attention and their dropout to the current pass."""
        from ptrun.backbone import own_models

        super().prepare(model, injection)
        own_models.connect(self.body(model), injection)

    def hidden(self, model: Any, given: BackboneInput, packing: Packing | None) -> Tensor:
        """Return the last hidden states `[B, T, H]`, or those of packed tokens."""
        scale = model.config.d_model**0.5 if model.config.scale_embedding else 1.0
        scaled = raw_words(model, given) * scale
        return super().hidden(model, replace(given, ids=None, embeddings=scaled), packing)


KINDS = {
    "gpt2": Decoder(
        "GPT2LMHeadModel",
        GPT2_PATHS,
        fields=GPT2,
        attention_maps=("c_attn",),  # queries, keys and values in one map
        stock=Stock(_WORDS),
    ),
    "llama": Decoder("LlamaForCausalLM"),
    "mistral": Decoder("MistralForCausalLM"),
    "qwen2": Decoder("Qwen2ForCausalLM"),
    "qwen3": Decoder("Qwen3ForCausalLM"),
    "megatron": Megatron(
        "MegatronLM",
        _MEGATRON,
        package="ptrun.backbone.own_models",
        fields=MEGATRON,
        visible=None,  # XGLM enlarges its position table to the length of the packed row
        stock=NO_STOCK,
    ),
}
