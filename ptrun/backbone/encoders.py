"""The encoders of the masked family: what differs between them, and their sizes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ptrun.backbone.base import Shape
from ptrun.errors import UserError


@dataclass(frozen=True)
class Kind:
    """What differs between the encoders of this family, by `model_type`."""

    model: str
    """The transformers class that holds encoder and output head."""
    head: str
    """Its output head's attribute: language-model logits, or ELECTRA's replaced-token score."""
    numbers_from_pad: bool
    """Whether positions start after the padding index (RoBERTa) instead of at 0."""
    counts_pooler: bool
    """Whether its published size includes a pooler."""


KINDS = {
    "bert": Kind("BertForMaskedLM", "cls", numbers_from_pad=False, counts_pooler=True),
    "roberta": Kind("RobertaForMaskedLM", "lm_head", numbers_from_pad=True, counts_pooler=True),
    "electra": Kind(
        "ElectraForPreTraining",
        "discriminator_predictions",
        numbers_from_pad=False,
        counts_pooler=False,
    ),
}


def kind_of(name: str, config: Mapping[str, Any]) -> Kind:
    """Return what kind of encoder a configuration describes.

    Raises:
        UserError: none of this family.
    """
    model_type = config.get("model_type")
    if model_type not in KINDS:
        raise UserError(
            f"backbone={name}: model type {model_type!r} is not supported; "
            f"allowed: {', '.join(KINDS)}."
        )
    return KINDS[model_type]


def shape_of(config: Mapping[str, Any], kind: Kind) -> Shape:
    """Return the sizes; RoBERTa loses its first positions to the padding index."""
    reserved = config.get("pad_token_id", 1) + 1 if kind.numbers_from_pad else 0
    return Shape(
        hidden_size=config["hidden_size"],
        embedding_size=config.get("embedding_size", config["hidden_size"]),
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        positions=config.get("max_position_embeddings", 512) - reserved,
        dropout=config.get("hidden_dropout_prob", 0.1),
    )
