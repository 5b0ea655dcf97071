"""The blank infillers: GLM-2B and GLM-10B.

One stack reads the text both ways and after it, left to right, what is written in its blank. So
the text is the input, and the answer is given as to a decoder: it begins with <|startofpiece|>,
sees all of the text and is not seen by it. The blank is the token of type 1; its position is that
of every token of the answer. Prefixes are seen by all.

An answer follows its text at once and padding comes last: where a token stands, and so its dropout,
does not depend on the other rows.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ptrun.backbone.base import BackboneInput, Shape
from ptrun.backbone.causal import GPT2_PATHS, Decoder
from ptrun.backbone.family import raw_words, read_order


class Infiller(Decoder):
    """The one architecture of the family: a GPT-2 that reads the text both ways."""

    def shape(self, config: Any) -> Shape:
        """Return the sizes; the last row of positions is for an objective that is not used."""
        return replace(super().shape(config), positions=config.n_positions - 1)

    def hidden(self, model: Any, given: BackboneInput) -> Tensor:
        """Return the last hidden states of the answer `[B, S, H]`, or without one the text's."""
        places, words = read_order(given.mask, given.shift), raw_words(model, given)
        inside, answer, width = torch.zeros_like(places), given.decoder, given.mask.shape[1]
        if answer is None:
            return _read(model, words, places, inside, both_ways(given.mask, width))
        words = torch.cat([words, raw_words(model, answer)], dim=1)
        inside = torch.cat([inside, answer.mask.long().cumsum(dim=1)], dim=1)
        blank = _blank(given, places)[:, None].expand_as(answer.mask)
        places = torch.cat([places, blank], dim=1)
        real = torch.cat([given.mask, answer.mask], dim=1)
        order = real.logical_not().byte().argsort(dim=1, stable=True)
        words, places, inside, real = (_moved(t, order) for t in (words, places, inside, real))
        seen = both_ways(real, given.mask.sum(dim=1)[:, None, None])
        made = _read(model, words, places, inside, seen)
        return _moved(made, order.argsort(dim=1)[:, width:])


def both_ways(seen: Tensor, border: Tensor | int) -> Tensor:
    """Return what each token sees, `[B, 1, L, L]`, of texts that end at a border.

    `seen [B, L]` says which tokens are real. Those of the text are seen by all, those of the answer
    by what comes after them. Padding sees itself too: a row of scores with nothing to see would be
    no number.
    """
    place = torch.arange(seen.shape[1], device=seen.device)
    reached = (place < border) | (place <= place[:, None])
    itself = place == place[:, None]
    return ((reached & seen[:, None, :]) | itself)[:, None]


def _read(model: Any, words: Tensor, places: Tensor, inside: Tensor, seen: Tensor) -> Tensor:
    made = model.hidden(words, places, inside, attention_mask=seen, use_cache=False)
    hidden: Tensor = made.last_hidden_state
    return hidden


def _moved(cells: Tensor, order: Tensor) -> Tensor:
    """Return the cells `[B, L, ...]` of each row in an order."""
    return cells[torch.arange(len(order), device=order.device)[:, None], order]


def _blank(given: BackboneInput, places: Tensor) -> Tensor:
    """Return the position of each row's blank `[B]`; without one, of the text's last token."""
    if given.types is None:
        return (places * given.mask).amax(dim=1)
    return (places * (given.types == 1)).amax(dim=1)


def family(kind: str) -> Infiller:
    """Return the architecture of a `model_type`."""
    return Infiller("BlockLM", GPT2_PATHS, name="infilling", package="ptrun.backbone.blocklm")
