"""The encoder-decoders: T5 (v1.1, LM-adapted), mT5, and CPM-2, which has T5's shape.

Prompts and prefixes go into the encoder, the decoder or the cross-attention. Positions are only
relative: soft prompts have them, prefixes do not. Without a decoder input only the encoder runs.
"""

import re
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ptrun.backbone.base import BackboneInput, Shape
from ptrun.backbone.family import T5, Family, Stock, SwitchFields
from ptrun.backbone.injection import Injection, Paths, Reader, wire
from ptrun.backbone.packing import LOOK_BACK, Packing
from ptrun.backbone.weights import PREFIX

_POSITIONS = 1024  # relative positions have no limit; this is PPT's longest input
_ENCODER = Paths(
    "block", "layer.0.SelfAttention", "layer.0.SelfAttention.o", "layer.1.DenseReluDense.wo"
)
_DECODER = replace(
    _ENCODER,
    grown="layer.2.DenseReluDense.wo",
    cross="layer.1.EncDecAttention",
    crossed="layer.1.EncDecAttention.o",
)
_WORDS = ("AutoModelForSeq2SeqLM", "SEQ_2_SEQ_LM")


@dataclass(frozen=True)
class EncoderDecoder(Family):
    """One encoder-decoder architecture.

    >>> from ptrun.backbone.pretrained import PretrainedBackbone
    >>> backbone = PretrainedBackbone(name="pocket_t5", shipped="pocket_t5")
    >>> backbone.architecture.has_decoder, backbone.shape.decoder_layers
    (True, 2)
    """

    paths: Paths = _ENCODER
    name: str = "seq2seq"
    fields: SwitchFields = T5
    has_decoder: bool = True
    relative: bool = True
    overflows: bool = True
    attention_maps: tuple[str, ...] = ("q", "v")

    def shape(self, config: Any) -> Shape:
        """Return the sizes; heads x head size differs from H in some models."""
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
        model.ptrun_injection = injection
        wire(model.encoder, self.paths, injection)
        wire(model.decoder, _DECODER, injection, "decoder")

    def body(self, model: Any) -> Any:
        """Return the whole model: encoder, decoder and head are its children."""
        return model

    def readers(self, model: Any) -> dict[Reader, Any]:
        """Return encoder and decoder."""
        return {"text": model.encoder, "decoder": model.decoder}

    def hidden(self, model: Any, inputs: BackboneInput, packing: Packing | None) -> Tensor:
        """Return the last hidden states of the decoder `[B, S, H]`, or of the encoder alone."""
        seen = inputs.mask[:, None, None, :]
        encoded: Tensor = model.encoder(
            input_ids=inputs.ids,
            inputs_embeds=_divided(model, inputs.embeddings),
            attention_mask=seen,
        ).last_hidden_state
        if inputs.decoder is None:
            return encoded
        decoded: Tensor = model.decoder(
            input_ids=inputs.decoder.ids,
            inputs_embeds=_divided(model, inputs.decoder.embeddings),
            attention_mask=LOOK_BACK(inputs.decoder.mask),
            encoder_hidden_states=encoded,
            encoder_attention_mask=seen,
            use_cache=False,
        ).last_hidden_state
        return decoded

    def logits(self, model: Any, hidden: Tensor) -> Tensor:
        """Return `[K, V]`; models with a tied output matrix scale their states first."""
        if getattr(model.config, "scale_decoder_outputs", False):
            hidden = hidden * model.config.d_model**-0.5
        if model.lm_head.weight is model.shared.weight:  # divided with the embeddings
            hidden = hidden * model.ptrun_injection.unit
        return super().logits(model, hidden)


def _divided(model: Any, embeddings: Tensor | None) -> Tensor | None:
    """Return embeddings in the unit of a model's residual stream."""
    return None if embeddings is None else embeddings / model.ptrun_injection.unit


KINDS = {
    "t5": EncoderDecoder(
        "T5ForConditionalGeneration",
        stock=Stock(_WORDS, differs="T5ForSequenceClassification reads the end of the text"),
    ),
    "mt5": EncoderDecoder(
        "MT5ForConditionalGeneration",
        stock=Stock(_WORDS, differs="MT5ForSequenceClassification reads the end of the text"),
    ),
}


# Scales T5's residual stream down into the range of fp16, as PPT does.
#
# The embeddings and the outputs of attention and feed-forward are divided by 100, the last as 10
# times 10. The norms undo this if their epsilon is divided by 100 squared; the function stays the
# same. PPT kept the epsilon, so its converted shards are T5 with 1e-2 instead of 1e-6
# (`backbone.layer_norm_eps=1e-2`). Importing them undoes the division.
#
# A backbone that is tuned learns the divided tensors, as in PPT. So one AdamW step moves the
# embeddings by 100 times the learning rate, in the unit of the checkpoint. Saved tensors have that
# unit.

UNIT = 100.0
"""The divisor of hidden states, embeddings and prompts."""
_FACTORS = {
    r"shared\.weight": UNIT,
    r".*\.(SelfAttention|EncDecAttention)\.o\.weight": UNIT,
    r".*\.DenseReluDense\.(wi_1|wo)\.weight": 10.0,
}


def factor(name: str) -> float:
    """Return the divisor of a T5 v1.1 tensor, by its name in transformers."""
    return next((f for pattern, f in _FACTORS.items() if re.fullmatch(pattern, name)), 1.0)


def learned_divisor(backbone: Any, name: str) -> float:
    """Return the divisor of a method's learned tensor: 1 unless it is of a scaled backbone."""
    stored = name.removeprefix(PREFIX)
    scaled = stored != name and backbone.injection.unit == UNIT
    return _divisor(backbone.model, stored) if scaled else 1.0


def _divisor(model: Any, name: str) -> float:
    # T5 v1.0 has one map before `wo`, which takes 100
    ungated = not model.config.is_gated_act and name.endswith("DenseReluDense.wo.weight")
    return UNIT if ungated else factor(name)


def scale_down(backbone: Any) -> None:
    """Divide the residual stream of a loaded T5 in place, unless it is divided already.

    The output of the model stays the same, and so does the unit of the word embeddings and hidden
    states that callers see.
    """
    if backbone.injection.unit == UNIT:
        return
    backbone.injection.unit = UNIT
    with torch.no_grad():
        for name, parameter in backbone.model.named_parameters():  # shared ones come once
            parameter /= _divisor(backbone.model, name)
    for module in backbone.model.modules():
        if hasattr(module, "variance_epsilon"):
            module.variance_epsilon /= UNIT**2
