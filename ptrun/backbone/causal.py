"""The left-to-right models: GPT-2, and models shaped like Llama (Mistral, Qwen).

A token sees itself, the tokens before it and every prefix. There are no segment ids.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ptrun.backbone.base import BackboneInput, Shape
from ptrun.backbone.family import GPT2, LLAMA, Family, Stock, SwitchFields, read
from ptrun.backbone.injection import Paths
from ptrun.backbone.packing import LOOK_BACK, Packing, Reach

GPT2_PATHS = Paths("h", "attn", "attn.c_proj", "mlp.c_proj")
_LLAMA = Paths("layers", "self_attn", "self_attn.o_proj", "mlp.down_proj")
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
}
