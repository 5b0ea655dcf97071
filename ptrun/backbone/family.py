"""The model families, and which family a configuration belongs to."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any

from torch import Tensor, nn

from ptrun.backbone.base import BackboneInput, DecoderInput, Shape
from ptrun.backbone.injection import Injection, Paths, wire
from ptrun.backbone.packing.packed import BLOCK, Packing, Visible, packing_of
from ptrun.backbone.switches import NO_FIELDS, Fields
from ptrun.errors import UserError

_MODULES = {
    "masked": ("bert", "roberta", "electra", "albert", "deberta", "deberta-v2"),
    "causal": ("gpt2", "llama", "mistral", "qwen2", "qwen3", "megatron"),
    "seq2seq": ("t5", "mt5"),
    "infilling": ("blocklm",),
}
FAMILY_OF = {kind: family for family, kinds in _MODULES.items() for kind in kinds}
"""Family by `model_type`; each family is a module of this package with a table `KINDS`."""


@dataclass(frozen=True)
class Stock:
    """The classes of transformers for a model type, which `ptrun export` fills.

    Args:
        words: the class that predicts words, and PEFT's kind of task; None if there is none.
        tags: name of the linear map of the class that tags words.
        dense: path of the layer and tanh before the labels of a text; None: the head differs.
        labels: path of the linear map that gives the labels of a text.
        pooler: the value of `readout.pooler` that trains such a dense layer.
        differs: how the class that labels a text differs.
        takes_past: whether it takes keys and values of a prefix.
        ia3: the modules that IA3 changes, where PEFT has no list of them.
    """

    words: tuple[str, str] | None = None
    tags: str = "classifier"
    dense: str | None = None
    labels: str = "classifier"
    pooler: str = "trainable"
    differs: str = "the stock classifier has no bias, which this run's head has"
    takes_past: bool = True
    ia3: Mapping[str, list[str]] | None = None


NO_STOCK = Stock()


@dataclass(frozen=True)
class Family(ABC):
    """How models of one `model_type` are loaded, connected and run; families are its subclasses.

    What other packages must know about a model, they read from its fields, never from its name.

    Args:
        library: name of the class in `package` that holds the body and the output head.
        paths: where the layers are.
        head: attribute of the output head; some checkpoints have `other_head` instead.
        name: name of the family.
        has_pooler: whether pre-training trains a pooler.
        pooler: whether the model can have a pooler.
        attention: the library's attention to use where ours cannot be registered.
        fields: what the configuration calls its dropouts and its epsilon.
        visible: the keys that each token sees, if the model can read packed tokens.
        left_to_right: whether a token sees only itself and those before it.
        has_decoder: whether a second stack reads what has been written.
        has_blank: whether the answer is written in a blank of the text.
        fills_masks: whether words are predicted at several masks of a text.
        writes_words: whether the output head predicts words; ELECTRA's detects replaced tokens.
        relative: whether positions are only relative, so that a prefix moves none.
        overflows: whether hidden states may overflow in fp16.
        shares_layers: whether all layers have the same weights.
        embeds_whole: whether `embed_whole` of a backbone works.
        attention_maps: last names of the query and value projections, as LoRA changes them.
        position_maps: last names of maps that also read relative positions.
        stock: what transformers and PEFT have for it.
    """

    library: str
    paths: Paths
    head: str = "lm_head"
    name: str = ""
    package: str = "transformers"
    other_head: str | None = None
    has_pooler: bool = False
    pooler: bool = False
    attention: str | None = None
    fields: Fields = NO_FIELDS
    visible: Visible | None = None
    left_to_right: bool = False
    has_decoder: bool = False
    has_blank: bool = False
    fills_masks: bool = False
    writes_words: bool = True
    relative: bool = False
    overflows: bool = False
    shares_layers: bool = False
    embeds_whole: bool = False
    attention_maps: tuple[str, ...] = ("q_proj", "v_proj")
    position_maps: frozenset[str] = frozenset()
    stock: Stock = NO_STOCK

    @property
    def encoder(self) -> bool:
        """Whether one stack reads the text in both directions, and nothing else."""
        return not (self.left_to_right or self.has_decoder or self.has_blank)

    @property
    def writes_apart(self) -> bool:
        """Whether the answer is passed as decoder input, apart from the text."""
        return self.has_decoder or self.has_blank

    @abstractmethod
    def shape(self, config: Any) -> Shape:
        """Return the sizes from a transformers configuration."""

    def prepare(self, model: Any, injection: Injection) -> None:
        """Connect the layers of a model to the current pass."""
        wire(self.body(model), self.paths, injection)

    def body(self, model: Any) -> Any:
        """Return the model without output head and pooler."""
        return model.base_model

    def packing(self, given: BackboneInput) -> Packing | None:
        """Return the packing of an input; None if the model reads padded rows."""
        if self.visible is None:
            return None
        causal = self.left_to_right
        return packing_of(given.mask, given.lengths, self.visible, BLOCK, causal=causal)

    @abstractmethod
    def hidden(self, model: Any, given: BackboneInput, packing: Packing | None) -> Tensor:
        """Return the last hidden states: `[B, S, H]` with a decoder input, else `[B, T, H]`.

        With a packing, those of its tokens `[1, N, H]`, or of the requested ones alone.
        """

    def logits(self, model: Any, hidden: Tensor) -> Tensor:
        """Return the output of the head, `[K, H] -> [K, V]`."""
        logits: Tensor = getattr(model, self.head)(hidden)
        return logits

    def counted(self, model: Any) -> list[nn.Parameter]:
        """Return the parameters that make up the published size; tied ones count once."""
        return list(model.parameters())


def family_of(
    name: str, config: Mapping[str, Any], own: Mapping[str, Family] = MappingProxyType({})
) -> Family:
    """Return the family of a configuration; `own` has families from outside, by model type.

    Raises:
        UserError: the model type is not supported.
    """
    kind = config.get("model_type")
    if isinstance(kind, str) and kind in own:
        return own[kind]
    if not isinstance(kind, str) or kind not in FAMILY_OF:
        raise UserError(
            f"backbone={name}: model type {kind!r} is not supported; "
            f"allowed: {', '.join(FAMILY_OF)}."
        )
    family: Family = import_module(f"ptrun.backbone.{FAMILY_OF[kind]}").KINDS[kind]
    return family


def raw_words(model: Any, given: BackboneInput | DecoderInput) -> Tensor:
    """Return raw word embeddings `[B, T, H]`, from the input or looked up."""
    if given.embeddings is not None:
        return given.embeddings
    words: Tensor = model.get_input_embeddings()(given.ids)
    return words


def read(given: BackboneInput, packing: Packing | None, **grids: Tensor | None) -> dict[str, Any]:
    """Return the words and other `grids [B, T]` that a model reads, packed if it reads so."""
    tokens = {"input_ids": given.ids, "inputs_embeds": given.embeddings, **grids}
    return tokens if packing is None else {k: packing.pack(grid) for k, grid in tokens.items()}


def read_order(mask: Tensor, shift: Tensor | None) -> Tensor:
    """Return position ids `[B, T]`: they count real tokens, on any padding side, plus the shift."""
    positions = (mask.long().cumsum(dim=1) - 1).clamp(min=0)
    return positions if shift is None else positions + shift[:, None]
