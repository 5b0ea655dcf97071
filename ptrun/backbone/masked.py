"""The encoders: BERT, RoBERTa, ELECTRA, ALBERT and DeBERTa.

Every token sees every real token. The head is that of the masked language model; ELECTRA's has two
layers and scores whether a token was replaced.
"""

import functools
import math
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from ptrun.backbone import norm as norms
from ptrun.backbone.attention import extend, joined
from ptrun.backbone.base import BackboneInput, Shape
from ptrun.backbone.family import ENCODER, Family, Stock, SwitchFields, read, read_order
from ptrun.backbone.injection import Injection, Paths, link_of
from ptrun.backbone.packing import EVERY, Packing, Reach
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


@dataclass(frozen=True)
class Architecture(Family):
    """One encoder architecture.

    Args:
        counts: attribute that the published size includes beside the encoder, or None.
        numbers_from_pad: whether positions start after the padding index (RoBERTa), not at 0.

    >>> from ptrun.backbone.pretrained import PretrainedBackbone
    >>> backbone = PretrainedBackbone(name="pocket_bert", shipped="pocket_bert")
    >>> backbone.architecture.fills_masks, backbone.shape.hidden_size
    (True, 128)
    """

    paths: Paths = _BERT
    name: str = "masked"
    pooler: bool = True
    fields: SwitchFields = ENCODER
    counts: str | None = "pooler"
    packed: Reach | None = EVERY
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
        if self.paths is not _BERT:
            return
        layers = self.layers(model)
        for layer in layers:
            for module in (layer.attention.output, layer.output):
                module.forward = functools.partial(_add, module)
        if self.packed is not None:
            layers[-1].attention.output.register_forward_pre_hook(
                lambda _, states: None if injection.edits else injection.narrow(*states)
            )

    def hidden(self, model: Any, inputs: BackboneInput, packing: Packing | None) -> Tensor:
        """Return the last hidden states `[B, T, H]`, or those of packed tokens."""
        # DeBERTa's eager attention needs integers: it also multiplies embeddings by the mask
        eager = self.attention == "eager"
        hidden: Tensor = self.body(model)(
            **read(
                inputs,
                packing,
                position_ids=self.positions(model, inputs),
                token_type_ids=inputs.types,
            ),
            attention_mask=inputs.mask.long() if eager else inputs.mask[:, None, None, :],
        ).last_hidden_state
        return hidden

    def positions(self, model: Any, inputs: BackboneInput) -> Tensor:
        """Return position ids `[B, T]`."""
        return read_order(inputs.mask, inputs.shift) + self._first(model.config)

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


class Albert(Architecture):
    """ALBERT: one layer, called repeatedly; word embeddings are narrower than H.

    >>> from ptrun.backbone.registry import families
    >>> families()["albert"].shares_layers
    True
    """

    def prepare(self, model: Any, injection: Injection) -> None:
        """Make one module per call over the shared parameters, then connect them."""
        encoder = self.body(model).encoder
        groups = encoder.albert_layer_groups
        if len(groups) != 1 or len(groups[0].albert_layers) != 1:
            raise UserError("only ALBERT models with one shared layer are supported.")
        count = model.config.num_hidden_layers
        encoder.albert_layer_groups = nn.ModuleList(_Call(groups[0]) for _ in range(count))
        encoder.config = deepcopy(encoder.config)
        encoder.config.num_hidden_groups = count
        model.supports_gradient_checkpointing = True  # `_Call` supports it
        super().prepare(model, injection)


class Deberta(Architecture):
    """DeBERTa: its own attention, with relative positions.

    >>> from ptrun.backbone.registry import families
    >>> sorted(families()["deberta-v2"].position_maps)
    ['key_proj', 'query_proj']
    """

    def prepare(self, model: Any, injection: Injection) -> None:
        """Connect the layers and put prefixes into their attention."""
        encoder = self.body(model).encoder
        for layer in encoder.layer:
            layer.attention.self.pos_dropout = nn.Identity()
        super().prepare(model, injection)
        for layer in encoder.layer:
            attention = layer.attention.self
            attention.forward = functools.partial(_attend, attention)

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
    "packed": None,
    "embeds_whole": False,
}
_LIKE_BERT = {
    "target_modules": ["key", "value", "output.dense"],
    "feedforward_modules": ["output.dense"],
}
KINDS: dict[str, Architecture] = {
    "bert": Architecture(
        "BertForMaskedLM",
        head="cls",
        has_pooler=True,
        stock=Stock(_WORDS, dense="bert.pooler.dense"),
    ),
    "roberta": Architecture(
        "RobertaForMaskedLM",
        numbers_from_pad=True,
        stock=Stock(
            _WORDS, dense="classifier.dense", labels="classifier.out_proj", pooler="classifier"
        ),
    ),
    "electra": Architecture(
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


class _Call(GradientCheckpointingLayer):  # type: ignore[misc]
    """One call of ALBERT's layer: new modules that share their tensors with all other calls."""

    def __init__(self, group: Any):
        super().__init__()
        shared = {id(t): t for t in (*group.parameters(), *group.buffers())}
        self.albert_layers = deepcopy(group.albert_layers, shared)

    def forward(self, hidden_states: Tensor, attention_mask: Tensor, **options: Any) -> Tensor:
        """Apply the layer to hidden states `[B, T, H]`."""
        hidden: Tensor = self.albert_layers[0](hidden_states, attention_mask, **options)
        return hidden


def _add(module: Any, hidden: Tensor, residual: Tensor) -> Tensor:
    """Return the states `[..., H]` at the end of a layer's half; Triton's program needs a GPU."""
    hidden, norm = module.dense(hidden), module.LayerNorm
    if norms.suits(hidden, residual, norm):
        return norms.add_norm(hidden, residual, norm, module.dropout.keyed(hidden.shape[-1]))
    out: Tensor = norm(module.dropout(hidden) + residual)
    return out


# DeBERTa's disentangled attention (He et al. 2021), versions 1 and 2, with prefixes.
#
# As in the code of P-tuning v2, prefix keys get no relative-position bias and the usual scale 1 /
# sqrt(d x (1 + number of bias types)). The dropout on the table of relative positions is omitted:
# it is one draw for a whole batch, but rows must not depend on each other.


def _attend(
    module: Any,
    hidden: Tensor,
    attention_mask: Tensor,
    output_attentions: bool = False,
    query_states: Tensor | None = None,
    relative_pos: Tensor | None = None,
    rel_embeddings: Tensor | None = None,
) -> tuple[Tensor, None]:
    """Return attention over prefix and tokens, `[B, T, H]`, and no weights."""
    query, key, value, bias = _parts(module, hidden, relative_pos, rel_embeddings)
    link, mask, length = link_of(module), attention_mask.bool(), 0
    link.show(key, value, mask)
    scores = torch.matmul(query, key.transpose(2, 3)) + bias
    prefix = link.prefix()
    if prefix is not None:
        length = prefix.key.shape[2]
        extended = extend(mask, prefix, key)
        assert extended is not None
        mask = extended
        prefixed = torch.matmul(query, prefix.key.to(query.dtype).transpose(2, 3))
        scores = torch.cat([prefixed, scores], dim=-1)
        value = joined(prefix, key, value)[1]
    scores = _mixed(module, "head_logits_proj", scores)
    weights = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(dim=-1)
    dropout = link.keyed(weights.shape[1], module.dropout.p)
    if module.training and dropout is not None:
        weights = dropout.behind(weights, length)
    weights = _mixed(module, "head_weights_proj", weights)
    return torch.matmul(weights, value).transpose(1, 2).flatten(2), None


def _mixed(module: nn.Module, name: str, scores: Tensor) -> Tensor:
    """Return scores after a "talking heads" projection, if the model has one."""
    projection = getattr(module, name, None)
    if projection is None:
        return scores
    mixed: Tensor = projection(scores.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    return mixed


def _parts(
    module: Any, hidden: Tensor, relative: Tensor | None, table: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | float]:
    """Return scaled queries, keys, values `[B, heads, T, d]` and the relative bias of scores."""
    joint = hasattr(module, "in_proj")
    query, key, value = projected(module, hidden)
    named = module.pos_att_type
    kinds = 1 + (len(named) if joint else sum(kind in named for kind in ("c2p", "p2c")))
    scale = math.sqrt(query.shape[-1] * kinds)
    if not module.relative_attention:
        return query / scale, key, value, 0.0
    if joint:
        bias = module.disentangled_att_bias(query / scale, key, relative, table, kinds)
        return query / scale, key, value, bias
    folded = query.flatten(0, 1), key.flatten(0, 1)
    bias = module.disentangled_attention_bias(*folded, relative, table, kinds)
    return query / scale, key, value, bias.view(*query.shape[:3], -1)


def projected(module: Any, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values `[B, heads, T, d]` of either version.

    Version 1 has one projection, heads first, and separate biases of queries and values.
    """
    if not hasattr(module, "in_proj"):
        shape = (*hidden.shape[:2], module.num_attention_heads, -1)
        maps = (module.query_proj, module.key_proj, module.value_proj)
        query, key, value = (project(hidden).view(shape).transpose(1, 2) for project in maps)
        return query, key, value
    query, key, value = module.transpose_for_scores(module.in_proj(hidden)).chunk(3, dim=-1)
    query_bias, value_bias = (
        module.transpose_for_scores(bias[None, None]).to(hidden.dtype)  # the library keeps fp32
        for bias in (module.q_bias, module.v_bias)
    )
    return query + query_bias, key, value + value_bias
