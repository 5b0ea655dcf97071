"""What a model family is to a backbone, and which family a configuration belongs to."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Protocol

from torch import Tensor, nn

from ptrun.backbone.base import BackboneInput, DecoderInput, Shape
from ptrun.backbone.injection import Injection, Paths, wire
from ptrun.errors import UserError

_MODULES = {
    "masked": ("bert", "roberta", "electra", "albert", "deberta", "deberta-v2"),
    "causal": ("gpt2", "llama", "mistral", "qwen2", "qwen3", "megatron"),
    "seq2seq": ("t5", "mt5"),
    "infilling": ("blocklm",),
}
WRITING = ("seq2seq", "infilling")
"""Families whose answer is written apart from the text, given as to a decoder."""
FAMILY_OF = {kind: family for family, kinds in _MODULES.items() for kind in kinds}
"""Family by `model_type`; each is the file of its name."""


class Family(Protocol):
    """How models of one `model_type` are loaded, wired and run.

    `library` names the class in `package` that holds body and output head, `head` (or in some
    checkpoints `other_head`) its head; `pooler` says whether there is a place for a pooler,
    `has_pooler` whether pre-training trains one;
    `attention` the library's attention to ask for, where ours cannot be registered.
    """

    name: str
    library: str
    package: str
    head: str
    other_head: str | None
    has_pooler: bool
    pooler: bool
    attention: str | None

    def shape(self, config: Any) -> Shape:
        """Return the sizes that a transformers configuration gives."""

    def prepare(self, model: Any, injection: Injection) -> None:
        """Connect a model's layers to the current pass."""

    def body(self, model: Any) -> Any:
        """Return the model without its output head."""

    def hidden(self, model: Any, given: BackboneInput) -> Tensor:
        """Return the last hidden states of the stack that answers."""

    def logits(self, model: Any, hidden: Tensor) -> Tensor:
        """Return the head's output at chosen positions, `[K, H] -> [K, V]`."""

    def counted(self, model: Any) -> list[nn.Parameter]:
        """Return the parameters of the published size."""


class OneStack:
    """What families with one stack of layers, at `paths`, have in common."""

    paths: Paths

    def prepare(self, model: Any, injection: Injection) -> None:
        """Connect a model's layers to the current pass."""
        wire(self.body(model), self.paths, injection)

    def body(self, model: Any) -> Any:
        """Return the model without output head and pooler."""
        return model.base_model


def family_of(name: str, config: Mapping[str, Any]) -> Family:
    """Return the family of a configuration.

    Raises:
        UserError: its model type is none that is supported.
    """
    kind = config.get("model_type")
    if kind not in FAMILY_OF:
        raise UserError(
            f"backbone={name}: model type {kind!r} is not supported; "
            f"allowed: {', '.join(FAMILY_OF)}."
        )
    found: Family = import_module(f"ptrun.backbone.{FAMILY_OF[kind]}").family(kind)
    return found


def raw_words(model: Any, given: BackboneInput | DecoderInput) -> Tensor:
    """Return raw word embeddings `[B, T, H]`, given or looked up."""
    if given.embeddings is not None:
        return given.embeddings
    words: Tensor = model.get_input_embeddings()(given.ids)
    return words


def read_order(mask: Tensor, shift: Tensor | None) -> Tensor:
    """Return position ids `[B, T]`: real tokens in order, whichever side is padded; then shift."""
    positions = (mask.long().cumsum(dim=1) - 1).clamp(min=0)
    return positions if shift is None else positions + shift[:, None]
