"""Texts that are written a token at a time: rows join a batch, and leave it, between two tokens.

The prompts of new rows are read alone; their keys and values then stand beside those of the rows
that are being written. The last column of a cache is the last token of every row, so that rows of
any length share a pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ptrun.backbone.base import BackboneInput, on_device
from ptrun.backbone.generation import padded_left, placed


@dataclass
class Held:
    """What rows have read.

    Args:
        cache: their keys and values, in a class of transformers.
        lengths: the tokens of each row in it; of an encoder-decoder those of the decoder.
        read: the tokens of each row that an encoder has read.
        states: the last hidden states of an encoder, `[B, T, H]`.
    """

    cache: Any
    lengths: list[int]
    read: list[int]
    states: Tensor | None


def begin(backbone: Any, inputs: BackboneInput) -> tuple[Held, Tensor]:
    """Read rows; return what they hold, and the logits of their next tokens, `[B, V]`."""
    from transformers import DynamicCache, EncoderDecoderCache

    inputs = padded_left(inputs)
    embeddings = backbone.embed(inputs.ids) if inputs.embeddings is None else inputs.embeddings
    start: dict[str, Any] = {"inputs_embeds": embeddings / backbone.injection.unit}
    cache: Any = DynamicCache()
    lengths, read = inputs.mask.sum(dim=1).tolist(), []
    if inputs.decoder is not None:
        cache = EncoderDecoderCache(cache, DynamicCache())
        lengths, read = inputs.decoder.mask.sum(dim=1).tolist(), lengths
        start |= {"attention_mask": inputs.mask, "decoder_input_ids": inputs.decoder.ids}
    elif "logits_to_keep" in signature(backbone.model.forward).parameters:
        start["logits_to_keep"] = 1
    with placed(backbone, inputs, 0):
        output = backbone.model(**start, past_key_values=cache, use_cache=True)
    states = getattr(output, "encoder_last_hidden_state", None)
    return Held(cache, lengths, read, states), output.logits[:, -1]


def step(backbone: Any, held: Held, inputs: BackboneInput, tokens: Sequence[int]) -> Tensor:
    """Read the next token of each row; return the logits of the one after it, `[B, V]`.

    `inputs` are those of the rows, of which the prompts' vectors and updates are used.
    """
    from transformers.modeling_outputs import BaseModelOutput

    device = inputs.mask.device
    mask = _aligned(held.lengths, device)
    start: dict[str, Any] = {"input_ids": on_device([[token] for token in tokens], device)}
    if inputs.decoder is not None:
        inputs = replace(inputs, decoder=replace(inputs.decoder, mask=mask))
        mask = _aligned(held.read, device)
        start = {
            "decoder_input_ids": start["input_ids"],
            "encoder_outputs": BaseModelOutput(held.states),
            "attention_mask": mask,
        }
    with placed(backbone, replace(inputs, mask=mask, lengths=None), 1):
        output = backbone.model(**start, past_key_values=held.cache, use_cache=True)
    held.lengths = [length + 1 for length in held.lengths]
    logits: Tensor = output.logits[:, -1]
    return logits


def regrouped(parts: Sequence[Held], rows: Sequence[int]) -> Held:
    """Return what some rows hold, in this order; `rows` counts through the rows of all parts.

    The parts are used up.
    """
    lengths = [n for part in parts for n in part.lengths]
    read = [n for part in parts for n in part.read]
    first = parts[0]
    held = replace(
        first, lengths=[lengths[row] for row in rows], read=[read[r] for r in rows if read]
    )
    halves = [_halves(part.cache) for part in parts]
    for caches, width in zip(
        zip(*halves, strict=True), map(max, filter(None, (held.lengths, held.read))), strict=True
    ):
        for layers in zip(*(cache.layers for cache in caches), strict=True):
            if layers[0].keys is not None:
                layers[0].keys = _rows([layer.keys for layer in layers], rows, width)
                layers[0].values = _rows([layer.values for layer in layers], rows, width)
    if first.states is not None:
        held.states = _rows([part.states for part in parts], rows, max(held.read))
    return held


def _halves(cache: Any) -> list[Any]:
    """Return the caches of self-attention and, of an encoder-decoder, of cross-attention."""
    both = ("self_attention_cache", "cross_attention_cache")
    return [getattr(cache, name) for name in both] if hasattr(cache, both[0]) else [cache]


def _rows(tensors: Sequence[Any], rows: Sequence[int], width: int) -> Tensor:
    """Return rows of tensors `[B, ..., T, d]`, the last `width` of T; zeros stand before less."""
    fitted = [functional.pad(t, (0, 0, width - t.shape[-2], 0)) for t in tensors]
    return torch.cat(fitted).index_select(0, on_device(list(rows), fitted[0].device))


def _aligned(lengths: Sequence[int], device: torch.device) -> Tensor:
    """Return a mask `[B, T]` of rows whose tokens are the last ones."""
    width = max(lengths)
    return torch.arange(width, 0, -1, device=device) <= on_device(lengths, device)[:, None]
