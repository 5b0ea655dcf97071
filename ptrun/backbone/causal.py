"""The left-to-right models: GPT-2, models shaped like Llama (Mistral, Qwen), and Megatron-11B.

A token sees itself, the tokens before it and every prefix. There are no segment ids.
"""

from dataclasses import dataclass, replace
from typing import Any

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
)
from ptrun.backbone.injection import Injection, Paths
from ptrun.backbone.packing import LOOK_BACK, Packing, Reach

GPT2_PATHS = Paths("h", "attn", "attn.c_proj", "mlp.c_proj")
_LLAMA = Paths("layers", "self_attn", "self_attn.o_proj", "mlp.down_proj")
_MEGATRON = Paths("layers", "self_attn", "self_attn.out_proj", "fc2")
_WORDS = ("AutoModelForCausalLM", "CAUSAL_LM")
_STOCK = Stock(_WORDS, tags="score")


@dataclass(frozen=True)
class Decoder(Family):
    """One left-to-right architecture.

    >>> from ptrun.backbone.pretrained import PretrainedBackbone
    >>> backbone = PretrainedBackbone(name="pocket_gpt2", shipped="pocket_gpt2")
    >>> backbone.architecture.left_to_right, backbone.shape.layers
    (True, 4)
    """

    paths: Paths = _LLAMA
    name: str = "causal"
    fields: SwitchFields = LLAMA
    packed: Reach | None = LOOK_BACK
    left_to_right: bool = True
    stock: Stock = _STOCK

    def shape(self, config: Any) -> Shape:
        """Return the sizes."""
        heads = config.num_attention_heads
        return Shape(
            hidden_size=config.hidden_size,
            embedding_size=config.hidden_size,
            layers=config.num_hidden_layers,
            heads=getattr(config, "num_key_value_heads", None) or heads,
            head_size=getattr(config, "head_dim", None) or config.hidden_size // heads,
            positions=config.max_position_embeddings,
            dropout=getattr(config, "resid_pdrop", getattr(config, "dropout", 0.0)),
        )

    def hidden(self, model: Any, inputs: BackboneInput, packing: Packing | None) -> Tensor:
        """Return the last hidden states `[B, T, H]`, or those of packed tokens."""
        hidden: Tensor = self.body(model)(
            **read(inputs, packing, position_ids=self.places(inputs)),
            attention_mask=inputs.mask,  # attention makes its own, with the window of each layer
            use_cache=False,
        ).last_hidden_state
        return hidden


class Megatron(Decoder):
    """Megatron-11B, built on XGLM: raw embeddings and prompts are scaled together.

    >>> from ptrun.backbone.registry import families
    >>> families()["megatron"].library
    'MegatronLM'
    """

    def prepare(self, model: Any, injection: Injection) -> None:
        """Connect the layers, their attention and their dropout to the current pass."""
        from ptrun.backbone import own_models

        super().prepare(model, injection)
        own_models.connect(self.body(model), injection)

    def hidden(self, model: Any, inputs: BackboneInput, packing: Packing | None) -> Tensor:
        """Return the last hidden states `[B, T, H]`, or those of packed tokens."""
        scale = model.config.d_model**0.5 if model.config.scale_embedding else 1.0
        scaled = raw_words(model, inputs) * scale
        return super().hidden(model, replace(inputs, ids=None, embeddings=scaled), packing)


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
        packed=None,  # XGLM enlarges its position table to the length of the packed row
        stock=NO_STOCK,
    ),
}
