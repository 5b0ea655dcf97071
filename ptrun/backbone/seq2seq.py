"""The encoder-decoders: T5 (v1.1, LM-adapted), mT5, and CPM-2, which has T5's shape.

Prompts and prefixes go into the encoder, the decoder or the cross-attention. Positions are
relative only: a soft prompt takes part in them, a prefix does not. Without a decoder input the
encoder alone runs.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ptrun.backbone.base import BackboneInput, Shape
from ptrun.backbone.causal import look_back
from ptrun.backbone.injection import Injection, Paths, wire

_POSITIONS = 1024  # relative positions have no end; PPT's longest input has this length
_ENCODER = Paths(
    "block", "layer.0.SelfAttention", "layer.0.SelfAttention.o", "layer.1.DenseReluDense.wo"
)
_DECODER = Paths(
    "block",
    "layer.0.SelfAttention",
    "layer.0.SelfAttention.o",
    "layer.2.DenseReluDense.wo",
    cross="layer.1.EncDecAttention",
    crossed="layer.1.EncDecAttention.o",
)


@dataclass(frozen=True)
class EncoderDecoder:
    """One architecture of the family."""

    library: str
    head: str = "lm_head"
    name: str = "seq2seq"
    package: str = "transformers"
    other_head: str | None = None
    has_pooler: bool = False
    pooler: bool = False
    attention: str | None = None

    def shape(self, config: Any) -> Shape:
        """Return the sizes; heads x head size is not H in all models."""
        return Shape(
            hidden_size=config.d_model,
            embedding_size=config.d_model,
            layers=config.num_layers,
            heads=config.num_heads,
            head_size=config.d_kv,
            positions=_POSITIONS,
            dropout=config.dropout_rate,
            decoder_layers=config.num_decoder_layers,
        )

    def prepare(self, model: Any, injection: Injection) -> None:
        """Connect the layers of both stacks."""
        object.__setattr__(model, "ptrun_injection", injection)  # no submodule
        wire(model.encoder, _ENCODER, injection)
        wire(model.decoder, _DECODER, injection, "decoder")

    def body(self, model: Any) -> Any:
        """Return the whole model: both stacks stand beside the head."""
        return model

    def hidden(self, model: Any, given: BackboneInput) -> Tensor:
        """Return the decoder's last hidden states `[B, S, H]`, or without one the encoder's."""
        seen = given.mask[:, None, None, :]
        read: Tensor = model.encoder(
            input_ids=given.ids,
            inputs_embeds=_divided(model, given.embeddings),
            attention_mask=seen,
        ).last_hidden_state
        if given.decoder is None:
            return read
        out: Tensor = model.decoder(
            input_ids=given.decoder.ids,
            inputs_embeds=_divided(model, given.decoder.embeddings),
            attention_mask=look_back(given.decoder.mask),
            encoder_hidden_states=read,
            encoder_attention_mask=seen,
            use_cache=False,
        ).last_hidden_state
        return out

    def logits(self, model: Any, hidden: Tensor) -> Tensor:
        """Return `[K, V]`; models with a tied output matrix scale their states first."""
        if getattr(model.config, "scale_decoder_outputs", False):
            hidden = hidden * model.config.d_model**-0.5
        if model.lm_head.weight is model.shared.weight:  # divided with the embeddings
            hidden = hidden * model.ptrun_injection.unit
        logits: Tensor = model.lm_head(hidden)
        return logits

    def counted(self, model: Any) -> list[nn.Parameter]:
        """Return all parameters."""
        return list(model.parameters())


def _divided(model: Any, embeddings: Tensor | None) -> Tensor | None:
    """Return embeddings in the unit of a model's residual stream."""
    return None if embeddings is None else embeddings / model.ptrun_injection.unit


_KINDS = {
    "t5": EncoderDecoder("T5ForConditionalGeneration"),
    "mt5": EncoderDecoder("MT5ForConditionalGeneration"),
}


def family(kind: str) -> EncoderDecoder:
    """Return the architecture of a `model_type`."""
    return _KINDS[kind]
