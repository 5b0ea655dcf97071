"""The backbones that transformers lacks: GLM, fairseq's Megatron-11B, and CPM-2's tokenizer.

GLM-2B and GLM-10B fill blanks.

One stack reads the text in both directions, then the answer in the text's blank left to right. The
answer is passed as decoder input and starts with <|startofpiece|>. It sees the whole text; the text
does not see it. The blank is the token of type 1, and every token of the answer has its position.
All tokens see the prefixes.

The answer follows its text directly and padding comes last. So the place of a token, and with it
its dropout, does not depend on the other rows.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ptrun.backbone.base import BackboneInput, Shape
from ptrun.backbone.causal import GPT2_PATHS, Decoder
from ptrun.backbone.family import GPT2, NO_STOCK, Family, Stock, SwitchFields, raw_words, read_order
from ptrun.backbone.injection import Injection, Paths
from ptrun.backbone.packing import Packing, Reach
from ptrun.backbone.seq2seq import KINDS, EncoderDecoder
from ptrun.backbone.tokenizers import Kind
from ptrun.papers.cpm2_text import is_cpm2


class _ByteLevel(Decoder):
    """A decoder whose tokenizer is GPT-2's with more tokens; transformers has no name for it."""

    def tokenizer(self, folder: Path, model_type: str, kind: Kind | None, *, words: bool) -> Any:
        """Return the tokenizer of a folder."""
        return super().tokenizer(folder, model_type, "bpe", words=words)


@dataclass(frozen=True)
class Infiller(_ByteLevel):
    """GLM-2B and GLM-10B: a GPT-2 that reads the text in both directions.

    >>> from ptrun.papers.backbone import Infiller
    >>> Infiller().has_blank
    True
    """

    library: str = "BlockLM"
    paths: Paths = GPT2_PATHS
    name: str = "infilling"
    package: str = "ptrun.papers.models"
    fields: SwitchFields = GPT2
    packed: Reach | None = None
    left_to_right: bool = False
    has_blank: bool = True
    attention_maps: tuple[str, ...] = ("c_attn",)
    stock: Stock = NO_STOCK

    def shape(self, config: Any) -> Shape:
        """Return the sizes; the last row of the position table serves an unused objective."""
        return replace(super().shape(config), positions=config.n_positions - 1)

    def hidden(self, model: Any, inputs: BackboneInput, packing: Packing | None) -> Tensor:
        """Return the last hidden states of the answer `[B, S, H]`, or of the text alone."""
        places, words = read_order(inputs.mask, inputs.shift), raw_words(model, inputs)
        inside, answer, width = torch.zeros_like(places), inputs.decoder, inputs.mask.shape[1]
        if answer is None:
            return _read(model, words, places, inside, both_ways(inputs.mask, width))
        words = torch.cat([words, raw_words(model, answer)], dim=1)
        inside = torch.cat([inside, answer.mask.long().cumsum(dim=1)], dim=1)
        # the position of each row's blank, or of its last token if it has no types
        blank = (places * (inputs.mask if inputs.types is None else inputs.types == 1)).amax(dim=1)
        places = torch.cat([places, blank[:, None].expand_as(answer.mask)], dim=1)
        real = torch.cat([inputs.mask, answer.mask], dim=1)
        order = real.logical_not().byte().argsort(dim=1, stable=True)
        words, places, inside, real = (_moved(t, order) for t in (words, places, inside, real))
        seen = both_ways(real, inputs.mask.sum(dim=1)[:, None, None])
        hidden = _read(model, words, places, inside, seen)
        return _moved(hidden, order.argsort(dim=1)[:, width:])


def both_ways(seen: Tensor, border: Tensor | int) -> Tensor:
    """Return what each token sees, `[B, 1, L, L]`, for rows whose text ends at `border`.

    `seen [B, L]` is True at real tokens. All tokens see the text; an answer token is seen only by
    those after it. Padding sees itself too: a softmax over no keys is NaN.
    """
    place = torch.arange(seen.shape[1], device=seen.device)
    reached = (place < border) | (place <= place[:, None])
    itself = place == place[:, None]
    return ((reached & seen[:, None, :]) | itself)[:, None]


def _read(model: Any, words: Tensor, places: Tensor, inside: Tensor, seen: Tensor) -> Tensor:
    output = model.hidden(words, places, inside, attention_mask=seen, use_cache=False)
    hidden: Tensor = output.last_hidden_state
    return hidden


def _moved(cells: Tensor, order: Tensor) -> Tensor:
    """Return the cells `[B, L, ...]` of each row in an order."""
    return cells[torch.arange(len(order), device=order.device)[:, None], order]


_MEGATRON = Paths("layers", "self_attn", "self_attn.out_proj", "fc2")
_DROPOUTS = SwitchFields(("dropout",), ("attention_dropout",))


@dataclass(frozen=True)
class Megatron(_ByteLevel):
    """Megatron-11B, built on XGLM: raw embeddings and prompts are scaled together.

    >>> from ptrun.papers.backbone import Megatron
    >>> Megatron().left_to_right
    True
    """

    library: str = "MegatronLM"
    paths: Paths = _MEGATRON
    package: str = "ptrun.papers.models"
    fields: SwitchFields = _DROPOUTS
    packed: Reach | None = None  # XGLM enlarges its position table to the length of the packed row
    stock: Stock = NO_STOCK

    def prepare(self, model: Any, injection: Injection) -> None:
        """Connect the layers, their attention and their dropout to the current pass."""
        from ptrun.papers.models import connect

        super().prepare(model, injection)
        connect(self.body(model), injection)

    def hidden(self, model: Any, inputs: BackboneInput, packing: Packing | None) -> Tensor:
        """Return the last hidden states `[B, T, H]`, or those of packed tokens."""
        scale = model.config.d_model**0.5 if model.config.scale_embedding else 1.0
        scaled = raw_words(model, inputs) * scale
        return super().hidden(model, replace(inputs, ids=None, embeddings=scaled), packing)


@dataclass(frozen=True)
class Cpm2(EncoderDecoder):
    """CPM-2, a T5 with a tokenizer of its own.

    >>> from ptrun.papers.backbone import Cpm2
    >>> Cpm2().has_decoder
    True
    """

    library: str = "T5ForConditionalGeneration"
    stock: Stock = KINDS["t5"].stock

    def tokenizer(self, folder: Path, model_type: str, kind: Kind | None, *, words: bool) -> Any:
        """Return the tokenizer of a folder, CPM-2's if the folder names it."""
        if not is_cpm2(folder):
            return super().tokenizer(folder, model_type, kind, words=words)
        from ptrun.papers.tokenizers import Cpm2Tokenizer

        return Cpm2Tokenizer.from_pretrained(folder)


def families() -> dict[str, Family]:
    """Return the families of model types that transformers lacks."""
    return {"blocklm": Infiller(), "megatron": Megatron()}
