"""Text that a backbone writes: transformers' `generate` over the wired model.

Prompts stay out of the library's cache, which holds the tokens of the text alone: our attention
adds the prefixes of a pass at each step. So no cache shifts, cuts or biases them. A blank infiller
has no cache: each step reads the whole rows.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ptrun.backbone.base import BackboneInput, DecoderInput, Positions, Prefix
from ptrun.backbone.choosing import Decoding, processors
from ptrun.backbone.family import as_words
from ptrun.errors import UserError


def generate(
    backbone: Any,
    inputs: BackboneInput,
    decoding: Decoding,
    seeds: Sequence[int] | None = None,
) -> list[list[int]]:
    """Return the tokens that a loaded backbone writes after each row, without its end.

    `inputs` has the prompt of each row and, for an encoder-decoder, the decoder's first tokens.
    `seeds`, one for each row, decide what is sampled: not the batch, and not the other rows. A
    model that cannot write is refused.
    """
    from transformers import DynamicCache, EncoderDecoderCache, GenerationConfig

    model, architecture = backbone.model.eval(), backbone.architecture
    if architecture.closed and not bool(inputs.mask.all()):
        raise AssertionError("rows of closed layers are written in batches of one length")
    if not writes(architecture):
        raise UserError(f"backbone={backbone.name} cannot write text; use a causal model or a T5.")
    inputs = inputs if architecture.has_blank else padded_left(inputs)
    inputs = _repeated(inputs, decoding.beams, both=not architecture.has_decoder)
    pad = getattr(model.config.get_text_config(), "pad_token_id", None)
    ends = list(decoding.ends)
    before = None if inputs.decoder is None else inputs.decoder.ids
    prompt = 0 if before is None else before.shape[1]
    config = GenerationConfig(
        max_new_tokens=decoding.max_new_tokens,
        num_beams=decoding.beams,
        length_penalty=float(decoding.length_penalty),  # transformers refuses whole numbers
        stop_strings=list(decoding.stop) or None,
        eos_token_id=ends or None,
        pad_token_id=(ends or [0])[0] if pad is None or pad < 0 else pad,
        # another first token of the decoder would stand before ours
        decoder_start_token_id=0 if before is None else int(before[0, 0]),
        use_cache=not architecture.has_blank,
        do_sample=False,
    )

    more = {
        "generation_config": config,
        "logits_processor": processors(decoding, seeds, before=prompt),
        "tokenizer": backbone.tokenizer() if decoding.stop else None,
    }
    if architecture.has_blank:
        written = _in_blanks(backbone, inputs, decoding.beams, more)
        return [_until(row, decoding.ends) for row in written[:, 1:].tolist()]
    cache: Any = DynamicCache()
    if architecture.has_decoder:
        cache = EncoderDecoderCache(cache, DynamicCache())
    # what `generate` reads: `[B, T, E]`, once for each example
    step = 1 if architecture.has_decoder else decoding.beams
    if architecture.closed:  # the model keeps what it has read in a cache of its own
        vectors = backbone.embed(inputs.ids) if inputs.embeddings is None else inputs.embeddings
        more["logits_processor"] = processors(decoding, seeds, before=vectors.shape[1])
        reading = as_words(model, vectors)
        with torch.no_grad(), backbone.injection.of(inputs), _plain(model), reading as ids:
            written = model.generate(input_ids=ids[::step], **more)
        return [_until(row, decoding.ends) for row in written[:, vectors.shape[1] :].tolist()]
    embeddings = backbone.embed(inputs.ids) if inputs.embeddings is None else inputs.embeddings
    mask = inputs.mask[::step]
    start = {
        "inputs_embeds": (embeddings / backbone.injection.unit)[::step],
        # the library drops ones, which would grow at each step; `_place` gives the mask
        "attention_mask": mask if architecture.has_decoder else torch.ones_like(mask).long(),
    }
    if inputs.decoder is not None:
        assert inputs.decoder.ids is not None
        start["decoder_input_ids"] = inputs.decoder.ids[:: decoding.beams]
    elif "inputs_embeds" not in signature(model.prepare_inputs_for_generation).parameters:
        raise UserError(f"backbone={backbone.name}: its class cannot write after input vectors.")
    with placed(backbone, inputs, decoding.max_new_tokens), _plain(model):
        written = model.generate(**start, **more, past_key_values=cache)
    return [_until(row, decoding.ends) for row in written[:, prompt:].tolist()]


def writes(architecture: Any) -> bool:
    """Return whether models of a family write text; Megatron-11B has no cache of its own."""
    generates = architecture.package == "transformers" or architecture.has_blank
    able = architecture.left_to_right or architecture.writes_apart
    return bool(generates and able)


def _in_blanks(backbone: Any, inputs: BackboneInput, beams: int, more: dict[str, Any]) -> Tensor:
    """Return the tokens that a blank infiller writes, its first one too, `[B, S]`."""
    from transformers.modeling_outputs import CausalLMOutput

    model, answer = backbone.model, inputs.decoder
    assert answer is not None and answer.ids is not None
    rows = torch.arange(len(answer.ids), device=answer.ids.device)

    def forward(input_ids: Tensor, **_: Any) -> CausalLMOutput:
        mask = torch.ones_like(input_ids, dtype=torch.bool)
        last = Positions(rows, torch.full_like(rows, input_ids.shape[1] - 1))
        now = replace(inputs, decoder=replace(answer, ids=input_ids, mask=mask), logits_at=last)
        return CausalLMOutput(logits=backbone.forward(now).logits[:, None])

    model.forward, model.prepare_inputs_for_generation = (
        forward,
        lambda input_ids, **_: {"input_ids": input_ids},
    )
    try:
        with torch.no_grad(), _plain(model):
            sequences: Tensor = model.generate(input_ids=answer.ids[::beams], **more)
    finally:
        del model.forward, model.prepare_inputs_for_generation
    return sequences


def _until(row: list[int], ends: Sequence[int]) -> list[int]:
    """Return a row with its end, and nothing after it."""
    at = next((i for i, token in enumerate(row) if token in ends), None)
    return row if at is None else row[: at + 1]


def padded_left(inputs: BackboneInput) -> BackboneInput:
    """Return rows whose last token is the last column, in both stacks."""
    decoder = inputs.decoder and replace(inputs.decoder, **_left(inputs.decoder))
    return replace(inputs, **_left(inputs), decoder=decoder, lengths=None, logits_at=None)


def _left(half: Any) -> dict[str, Any]:
    order = half.mask.int().argsort(dim=1, stable=True)
    grids = {name: getattr(half, name, None) for name in ("mask", "ids", "embeddings", "types")}
    return {
        name: grid.gather(1, order if grid.dim() == 2 else order[..., None].expand_as(grid))
        for name, grid in grids.items()
        if grid is not None
    }


def _repeated(inputs: BackboneInput, beams: int, *, both: bool) -> BackboneInput:
    """Return each row as many times as it has beams; the encoder reads a row once."""
    if beams == 1:
        return inputs
    inputs = replace(inputs, decoder=_more(beams, inputs.decoder))
    if not both:
        return inputs
    names = ("mask", "ids", "embeddings", "types", "shift", "prefixes")
    return replace(
        inputs,
        **{name: _more(beams, getattr(inputs, name)) for name in names},
        lengths=inputs.lengths and [n for n in inputs.lengths for _ in range(beams)],
        updates=[replace(update, rows=update.rows * beams) for update in inputs.updates],
    )


def _more(beams: int, value: Any) -> Any:
    """Return each row of a tensor, or of what has tensors, `beams` times."""
    if isinstance(value, tuple):
        return tuple(_more(beams, entry) for entry in value)
    if isinstance(value, Prefix | DecoderInput):
        parts = {field.name: getattr(value, field.name) for field in fields(value)}
        return replace(value, **{name: _more(beams, part) for name, part in parts.items()})
    return value.repeat_interleave(beams, dim=0) if isinstance(value, Tensor) else value


@contextmanager
def placed(backbone: Any, inputs: BackboneInput, most: int) -> Iterator[None]:
    """Give each pass of the model the prompts of `inputs`, and its tokens their positions.

    `most` tokens are written; masks and positions are made once, for all of them.
    """
    injection, architecture = backbone.injection, backbone.architecture
    hooks = []
    for reader, root in architecture.readers(backbone.model).items():
        half: Any = inputs.decoder if reader == "decoder" else inputs
        half = replace(half, mask=functional.pad(half.mask, (0, most), value=True))
        place = partial(_place, backbone, half.mask, architecture.places(half))
        hooks.append(root.register_forward_pre_hook(place, with_kwargs=True))
    try:
        with torch.no_grad(), injection.of(inputs):
            yield
    finally:
        injection.places = None
        for hook in hooks:
            hook.remove()


@contextmanager
def _plain(model: Any) -> Iterator[None]:
    """Leave out what a checkpoint says of generation."""
    usual, model.generation_config = model.generation_config, type(model.generation_config)()
    try:
        yield
    finally:
        model.generation_config = usual


def _place(
    backbone: Any, mask: Tensor, places: Tensor, _: Any, arguments: Any, options: Any
) -> tuple[Any, Any]:
    """Say what a stack reads in this step, and where: the last tokens of its rows."""
    both = (options.get("inputs_embeds"), options.get("input_ids"), *arguments[:1])
    count = next(tensor for tensor in both if tensor is not None).shape[1]
    cache = options.get("past_key_values")
    before = 0 if cache is None else cache.get_seq_length()
    backbone.injection.places = places[:, before : before + count]
    options = {**options, "attention_mask": mask[:, : before + count]}
    if backbone.architecture.takes_positions:
        options["position_ids"] = backbone.injection.places
    return arguments, options
