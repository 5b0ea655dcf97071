"""The encoders: BERT, RoBERTa, ELECTRA, ALBERT and DeBERTa.

Every token sees every real token. The head is that of the masked language model; ELECTRA's has two
layers and scores whether a token was replaced.
"""

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ptrun.backbone.base import BackboneInput, Shape
from ptrun.backbone.family import Family, Stock, read, read_order
from ptrun.backbone.injection import Injection, Paths
from ptrun.backbone.packing.packed import Packing, Visible
from ptrun.backbone.switches import ENCODER, Fields
from ptrun.errors import UserError

_BERT = Paths("encoder.layer", "attention.self", "attention.output.dense", "output.dense")
_ALBERT = Paths(
    "encoder.albert_layer_groups",
    "albert_layers.0.attention",
    "albert_layers.0.attention.dense",
    "albert_layers.0.ffn_output",
)
_WORDS = ("AutoModelForMaskedLM", "FEATURE_EXTRACTION")  # PEFT has no kind for masked words
_STOCK = Stock(_WORDS)


def every_real(mask: Tensor) -> Tensor | None:
    """Return which keys each token sees, `[B, T] -> [B, 1, 1, T]`; None if it sees all."""
    full = mask.is_meta or bool(mask.all())  # memory is planned without values, for full rows
    return None if full else mask[:, None, None, :]


@dataclass(frozen=True)
class Encoder(Family):
    """One encoder architecture.

    Args:
        counts: attribute that the published size includes beside the encoder, or None.
        numbers_from_pad: whether positions start after the padding index (RoBERTa), not at 0.
    """

    paths: Paths = _BERT
    name: str = "masked"
    pooler: bool = True
    fields: Fields = ENCODER
    counts: str | None = "pooler"
    visible: Visible | None = every_real
    fills_masks: bool = True
    embeds_whole: bool = True
    attention_maps: tuple[str, ...] = ("query", "value")
    stock: Stock = _STOCK
    numbers_from_pad: bool = False

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

    def prepare(self, model: Any, injection: Injection) -> None:
        """Connect the layers; after its attention, the last one computes requested tokens only."""
        super().prepare(model, injection)
        if self.paths is _BERT and self.visible is not None:
            last = self.body(model).encoder.layer[-1]
            last.attention.output.register_forward_pre_hook(
                lambda _, states: None if injection.edits else injection.narrow(*states)
            )

    def hidden(self, model: Any, given: BackboneInput, packing: Packing | None) -> Tensor:
        """Return the last hidden states `[B, T, H]`, or those of packed tokens."""
        # DeBERTa's eager attention needs integers: it also multiplies embeddings by the mask
        eager = self.attention == "eager"
        hidden: Tensor = self.body(model)(
            **read(
                given,
                packing,
                position_ids=self.positions(model, given),
                token_type_ids=given.types,
            ),
            attention_mask=given.mask.long() if eager else given.mask[:, None, None, :],
        ).last_hidden_state
        return hidden

    def positions(self, model: Any, given: BackboneInput) -> Tensor:
        """Return position ids `[B, T]`."""
        return read_order(given.mask, given.shift) + self._first(model.config)

    def logits(self, model: Any, hidden: Tensor) -> Tensor:
        """Return `[K, V]` word logits, or ELECTRA's `[K, 1]`."""
        logits = super().logits(model, hidden)
        return logits if logits.dim() == 2 else logits[:, None]

    def counted(self, model: Any) -> list[nn.Parameter]:
        """Return the encoder's parameters, and those of `counts`."""
        extra = getattr(model, self.counts).parameters() if self.counts else ()
        return [*self.body(model).parameters(), *extra]

    def _first(self, config: Any) -> int:
        return int(config.pad_token_id) + 1 if self.numbers_from_pad else 0


class Albert(Encoder):
    """ALBERT: one layer, called repeatedly; word embeddings are narrower than H."""

    def prepare(self, model: Any, injection: Injection) -> None:
        """Make one module per call over the shared parameters, then connect them."""
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
    """DeBERTa: its own attention, with relative positions."""

    def prepare(self, model: Any, injection: Injection) -> None:
        """Connect the layers and put prefixes into their attention."""
        from ptrun.backbone import deberta

        encoder = self.body(model).encoder
        for layer in encoder.layer:
            layer.attention.self.pos_dropout = nn.Identity()
        super().prepare(model, injection)
        deberta.wrap(encoder.layer)

    def logits(self, model: Any, hidden: Tensor) -> Tensor:
        """Return `[K, V]`; the published checkpoints multiply by the word embeddings."""
        if model.legacy:
            return super().logits(model, hidden)
        table = self.body(model).get_input_embeddings()
        logits: Tensor = model.lm_predictions(hidden, table)
        return logits


_ELECTRA = "discriminator_predictions"
_DEBERTA: dict[str, Any] = {
    "other_head": "lm_predictions",
    "counts": None,
    "attention": "eager",
    "visible": None,
    "embeds_whole": False,
}
_LIKE_BERT = {
    "target_modules": ["key", "value", "output.dense"],
    "feedforward_modules": ["output.dense"],
}
KINDS: dict[str, Encoder] = {
    "bert": Encoder(
        "BertForMaskedLM",
        head="cls",
        has_pooler=True,
        stock=Stock(_WORDS, dense="bert.pooler.dense"),
    ),
    "roberta": Encoder(
        "RobertaForMaskedLM",
        numbers_from_pad=True,
        stock=Stock(
            _WORDS, dense="classifier.dense", labels="classifier.out_proj", pooler="classifier"
        ),
    ),
    "electra": Encoder(
        "ElectraForPreTraining",
        head=_ELECTRA,
        counts=_ELECTRA,
        writes_words=False,
        stock=Stock(
            _WORDS, differs="ElectraForSequenceClassification has GELU in its head", ia3=_LIKE_BERT
        ),
    ),
    "albert": Albert(
        "AlbertForMaskedLM",
        _ALBERT,
        head="predictions",
        has_pooler=True,
        shares_layers=True,
        stock=Stock(_WORDS, dense="albert.pooler", takes_past=False),
    ),
    "deberta": Deberta(
        "DebertaForMaskedLM",
        head="cls",
        attention_maps=("in_proj",),  # queries, keys and values in one map
        position_maps=frozenset({"pos_proj", "pos_q_proj"}),
        stock=Stock(
            _WORDS,
            differs="DebertaForSequenceClassification has GELU in its pooler",
            takes_past=False,
        ),
        **_DEBERTA,
    ),
    "deberta-v2": Deberta(
        "DebertaV2ForMaskedLM",
        head="cls",
        attention_maps=("query_proj", "value_proj"),
        position_maps=frozenset({"query_proj", "key_proj"}),
        stock=Stock(
            _WORDS,
            differs="DebertaV2ForSequenceClassification has GELU in its pooler",
            takes_past=False,
        ),
        **_DEBERTA,
    ),
}
