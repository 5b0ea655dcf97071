"""Turns Megatron shards of CPM-2, or of PPT's T5, into a model folder of transformers.

    ptrun import cpm2 SHARDS --out DIR

One tensor is joined and written at a time, and the shards are mapped: memory stays far below the
model's size. The folder appears whole or not at all.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from ptrun.backbone.cpm2_text import read_vocabulary, write_tokenizer
from ptrun.backbone.residual import UNIT, factor
from ptrun.errors import UserError
from ptrun.importing.layout import Target, targets
from ptrun.importing.shards import Shards
from ptrun.importing.sizes import CPM2_ROWS, Sizes, SpecialIds, model_config, special_ids
from ptrun.importing.staging import check_new, progress, staging
from ptrun.importing.writing import FILE_BYTES, NAMES, Entry, write_file, write_model

Dtype = Literal["fp16", "bf16", "fp32"]
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
PROMPT_FILE, PROMPT_NAME = "prompt.safetensors", "prompt"


@dataclass(frozen=True)
class Imported:
    """What an import wrote."""

    folder: Path
    sizes: Sizes
    parameters: int
    nbytes: int
    has_prompt: bool


def import_cpm2(
    source: Path,
    out: Path,
    *,
    unscale: bool = False,
    dtype: Dtype | None = None,
    tokenizer: Path | None = None,
    file_bytes: int = FILE_BYTES,
) -> Imported:
    """Write the folder of a checkpoint and say what is in it.

    Args:
        source: the shards: a folder with `latest_checkpointed_iteration.txt`, or mp_rank files.
        out: the folder to write, new or empty. A trained prompt goes to its prompt.safetensors.
        unscale: undo the division by 100 of PPT's converted T5 shards.
        dtype: of the tensors; the checkpoint's own by default.
        tokenizer: CPM-2's vocab.txt, to be copied along.
        file_bytes: size of a file, at most.

    Raises:
        UserError: the shards are incomplete or do not agree, a value does not fit the dtype, `out`
            is not empty, or the disk is too full. Nothing is left in `out` then.
    """
    check_new(out)
    shards = Shards(source)
    special = _special(shards.sizes, tokenizer, unscale=unscale)
    wanted = targets(shards.sizes.encoder_layers, shards.sizes.decoder_layers)
    shards.check(wanted)
    entries = {target: _entry(shards, target, dtype) for target in wanted}
    total = sum(entry.nbytes for entry in entries.values())
    with staging(out, total) as folder, progress(total) as advance:
        read = _reader(shards, entries, advance, unscale=unscale)
        write_model(folder, list(entries.values()), read, file_bytes)
        if shards.has_prompt:
            _write_prompt(folder, shards.prompt(), unscale=unscale)
        if tokenizer is not None:
            write_tokenizer(tokenizer, folder)
        _write_config(folder, shards.sizes, special, entries[wanted[0]].dtype)
    parameters = sum(torch.Size(entry.shape).numel() for entry in entries.values())
    return Imported(out, shards.sizes, parameters, total, shards.has_prompt)


def _special(sizes: Sizes, tokenizer: Path | None, *, unscale: bool) -> SpecialIds:
    """Return the special ids, from the vocabulary where one is given."""
    if unscale and sizes.vocab in CPM2_ROWS:
        raise UserError(
            f"--unscale: {sizes.vocab} rows are CPM-2's vocabulary, and CPM-2 was never scaled;\n"
            "leave --unscale out. It is for PPT's converted T5 shards."
        )
    if tokenizer is None:
        return special_ids(sizes.vocab, t5=unscale)
    ids = read_vocabulary(tokenizer)
    if len(ids) != sizes.vocab:
        raise UserError(
            f"--tokenizer {tokenizer}: {len(ids)} lines, but the model has {sizes.vocab} rows."
        )
    return SpecialIds(pad=ids["<pad>"], eos=ids["<eod>"], start=ids["<s>"])


def _entry(shards: Shards, target: Target, dtype: Dtype | None) -> Entry:
    own = shards.dtypes[target.source]
    if own not in NAMES:
        raise UserError(f"{target.source}: {own} is not a type of weights.")
    return Entry(target.name, shards.sizes.shape(target.shape), DTYPES[dtype] if dtype else own)


def _reader(
    shards: Shards,
    entries: dict[Target, Entry],
    advance: Callable[[int], None],
    *,
    unscale: bool,
) -> Callable[[Entry], Tensor]:
    """Return what joins the tensor of an entry."""
    by_name = {entry.name: target for target, entry in entries.items()}

    def read(entry: Entry) -> Tensor:
        times = factor(entry.name) if unscale else 1.0
        tensor = _converted(shards.join(by_name[entry.name]), entry, times)
        advance(entry.nbytes)
        return tensor

    return read


def _converted(tensor: Tensor, entry: Entry, times: float) -> Tensor:
    """Return a tensor scaled and in its dtype; the very tensor where nothing changes."""
    if times == 1.0 and tensor.dtype == entry.dtype:
        return tensor
    exact = torch.promote_types(tensor.dtype, torch.float32)
    converted = (tensor.to(exact) * times if times != 1.0 else tensor).to(entry.dtype)
    if entry.dtype == torch.float16 and not bool(converted.isfinite().all()):
        raise UserError(f"{entry.name}: values beyond what fp16 holds; add --dtype bf16.")
    return converted


def _write_prompt(folder: Path, prompt: Tensor, *, unscale: bool) -> None:
    entry = Entry(PROMPT_NAME, tuple(prompt.shape), prompt.dtype)
    times = UNIT if unscale else 1.0  # a prompt stands among the embeddings
    write_file(folder / PROMPT_FILE, [entry], lambda _: _converted(prompt, entry, times))


def _write_config(folder: Path, sizes: Sizes, special: SpecialIds, dtype: torch.dtype) -> None:
    config = model_config(sizes, special, str(dtype).removeprefix("torch."))
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
