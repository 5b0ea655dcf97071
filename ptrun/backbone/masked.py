"""The encoders: BERT, RoBERTa, ELECTRA, ALBERT and DeBERTa.

Every token sees every real token; the head is the masked language model's, or ELECTRA's score of
"replaced" through its two layers.
"""

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ptrun.backbone.base import BackboneInput, Shape
from ptrun.backbone.family import OneStack, read_order
from ptrun.backbone.injection import Injection, Paths
from ptrun.errors import UserError

_BERT = Paths("encoder.layer", "attention.self", "attention.output.dense", "output.dense")
_ALBERT = Paths(
    "encoder.albert_layer_groups",
    "albert_layers.0.attention",
    "albert_layers.0.attention.dense",
    "albert_layers.0.ffn_output",
)


@dataclass(frozen=True)
class Encoder(OneStack):
    """One architecture of the family.

    Args:
        library: the transformers class that holds encoder and output head.
        head: its output head's attribute.
        counts: what its published size has beside the encoder: `pooler`, `head` or neither.
        numbers_from_pad: whether positions start after the padding index (RoBERTa), not at 0.
        paths: where its layers are.
        other_head: another attribute the head may have, by configuration.
        has_pooler: whether pre-training trained a pooler; poolers that tuning left are not used.
    """

    library: str
    head: str
    counts: str | None = "pooler"
    numbers_from_pad: bool = False
    paths: Paths = _BERT
    attention: str | None = None
    other_head: str | None = None
    has_pooler: bool = False
    name: str = "masked"
    package: str = "transformers"
    pooler: bool = True

    def shape(self, config: Any) -> Shape:
        """Return the sizes; RoBERTa loses its first positions to the padding index."""
        return Shape(
            hidden_size=config.hidden_size,
            embedding_size=getattr(config, "embedding_size", config.hidden_size),
            layers=config.num_hidden_layers,
            heads=config.num_attention_heads,
            head_size=config.hidden_size // config.num_attention_heads,
            positions=config.max_position_embeddings - self._first(config),
            dropout=config.hidden_dropout_prob,
        )

    def hidden(self, model: Any, given: BackboneInput) -> Tensor:
        """Return the last hidden states `[B, T, H]`."""
        out: Tensor = self.body(model)(
            input_ids=given.ids,
            inputs_embeds=given.embeddings,
            attention_mask=self.attention_mask(given.mask),
            token_type_ids=given.types,
            position_ids=self.positions(model, given),
        ).last_hidden_state
        return out

    def positions(self, model: Any, given: BackboneInput) -> Tensor:
        """Return position ids `[B, T]`."""
        return read_order(given.mask, given.shift) + self._first(model.config)

    def attention_mask(self, mask: Tensor) -> Tensor:
        """Return the mask in the form the library leaves alone."""
        return mask[:, None, None, :]

    def logits(self, model: Any, hidden: Tensor) -> Tensor:
        """Return `[K, V]` word logits, or ELECTRA's `[K, 1]`."""
        logits: Tensor = getattr(model, self.head)(hidden)
        return logits if logits.dim() == 2 else logits[:, None]

    def counted(self, model: Any) -> list[nn.Parameter]:
        """Return the encoder's parameters, and what its published size counts beside them."""
        beside = {"pooler": "pooler", "head": self.head}.get(self.counts or "")
        extra = getattr(model, beside).parameters() if beside else ()
        return [*self.body(model).parameters(), *extra]

    def _first(self, config: Any) -> int:
        return int(config.pad_token_id) + 1 if self.numbers_from_pad else 0


class Albert(Encoder):
    """ALBERT: one layer, called again and again; word embeddings are narrower than H."""

    def prepare(self, model: Any, injection: Injection) -> None:
        """Give each call a module of its own over the shared parameters, then connect them."""
        from ptrun.backbone.albert import Call

        encoder = self.body(model).encoder
        groups = encoder.albert_layer_groups
        if len(groups) != 1 or len(groups[0].albert_layers) != 1:
            raise UserError("only ALBERT models with one shared layer are supported.")
        count = model.config.num_hidden_layers
        encoder.albert_layer_groups = nn.ModuleList(Call(groups[0]) for _ in range(count))
        encoder.config = deepcopy(encoder.config)
        encoder.config.num_hidden_groups = count
        model.supports_gradient_checkpointing = True  # `Call` supports it
        super().prepare(model, injection)


class Deberta(Encoder):
    """DeBERTa: relative positions inside an attention of its own."""

    def prepare(self, model: Any, injection: Injection) -> None:
        """Connect the layers and put prefixes into their attention."""
        from ptrun.backbone import deberta

        encoder = self.body(model).encoder
        for layer in encoder.layer:
            layer.attention.self.pos_dropout = nn.Identity()
        super().prepare(model, injection)
        deberta.wrap(encoder.layer)

    def attention_mask(self, mask: Tensor) -> Tensor:
        """Return the mask as numbers: the library also multiplies embeddings by it."""
        return mask.long()

    def logits(self, model: Any, hidden: Tensor) -> Tensor:
        """Return `[K, V]`; the published checkpoints multiply by the word embeddings."""
        if model.legacy:
            return super().logits(model, hidden)
        table = self.body(model).get_input_embeddings()
        logits: Tensor = model.lm_predictions(hidden, table)
        return logits


_DEBERTA: dict[str, Any] = {"counts": None, "attention": "eager", "other_head": "lm_predictions"}
_KINDS: dict[str, Encoder] = {
    "bert": Encoder("BertForMaskedLM", "cls", has_pooler=True),
    "roberta": Encoder("RobertaForMaskedLM", "lm_head", numbers_from_pad=True),
    "electra": Encoder("ElectraForPreTraining", "discriminator_predictions", counts="head"),
    "albert": Albert("AlbertForMaskedLM", "predictions", paths=_ALBERT, has_pooler=True),
    "deberta": Deberta("DebertaForMaskedLM", "cls", **_DEBERTA),
    "deberta-v2": Deberta("DebertaV2ForMaskedLM", "cls", **_DEBERTA),
}


def family(kind: str) -> Encoder:
    """Return the architecture of a `model_type`."""
    return _KINDS[kind]
