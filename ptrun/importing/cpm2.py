"""Import of CPM-2, or of PPT's T5, from Megatron shards: `ptrun import cpm2 SHARDS --out DIR`."""

from pathlib import Path

from torch import Tensor

from ptrun.backbone.residual import UNIT, factor
from ptrun.converting.convert import Dtype, Imported, convert, converted, write_config
from ptrun.converting.shards import Shards
from ptrun.converting.staging import check_new
from ptrun.converting.target import Target
from ptrun.converting.writing import FILE_BYTES, Entry, write_file
from ptrun.errors import UserError
from ptrun.importing.cpm2_layout import targets
from ptrun.importing.cpm2_sizes import (
    ALIASES,
    CPM2_ROWS,
    EMBEDDINGS,
    PROMPT,
    Sizes,
    SpecialIds,
    model_config,
    read_sizes,
    special_ids,
)
from ptrun.importing.rank_files import RankFiles
from ptrun.tokenizer.cpm2_text import read_vocabulary, write_tokenizer

PROMPT_FILE, PROMPT_NAME = "prompt.safetensors", "prompt"


def import_cpm2(
    source: Path,
    out: Path,
    *,
    unscale: bool = False,
    dtype: Dtype | None = None,
    tokenizer: Path | None = None,
    file_bytes: int = FILE_BYTES,
) -> Imported:
    """Write the folder of a checkpoint and return a summary of it.

    Args:
        source: the shards: a folder with `latest_checkpointed_iteration.txt`, or mp_rank files.
        out: a new or empty folder. A trained prompt goes to its prompt.safetensors.
        unscale: undo the division by 100 of PPT's converted T5 shards.
        dtype: dtype of the tensors; defaults to the checkpoint's.
        tokenizer: CPM-2's vocab.txt, copied into the folder.
        file_bytes: most bytes of a file.

    Raises:
        UserError: the shards are incomplete or differ, a value does not fit the dtype, `out` is not
            empty, or the disk is too full. Nothing is written to `out` then.
    """
    check_new(out)
    shards = Shards(RankFiles(source))
    sizes = read_sizes(shards.shapes, shards.count)
    special = _special(sizes, tokenizer, unscale=unscale)
    wanted = targets(sizes)
    _check(shards, sizes, wanted)

    def finish(folder: Path, kind: str) -> None:
        if PROMPT in shards.shapes:
            _write_prompt(folder, shards.read(PROMPT)[0], unscale=unscale)
        if tokenizer is not None:
            write_tokenizer(tokenizer, folder)
        write_config(folder, model_config(sizes, special, kind))

    times = factor if unscale else lambda name: 1.0
    size = convert(shards, wanted, out, finish, dtype=dtype, times=times, file_bytes=file_bytes)
    return Imported(out, sizes, *size, notes=("a prompt",) if PROMPT in shards.shapes else ())


def _check(shards: Shards, sizes: Sizes, wanted: list[Target]) -> None:
    if sizes.inner % sizes.heads:
        raise UserError(
            f"attention has {sizes.inner} columns; expected a multiple of its {sizes.heads} heads."
        )
    aliases = dict.fromkeys(ALIASES, EMBEDDINGS)
    shards.check(wanted, model="T5", aliases=aliases, spare=[PROMPT])
    if PROMPT in shards.shapes:
        shards.check_equal(PROMPT)


def _special(sizes: Sizes, tokenizer: Path | None, *, unscale: bool) -> SpecialIds:
    """Return the special ids, from the vocabulary file if there is one."""
    if unscale and sizes.vocab in CPM2_ROWS:
        raise UserError(
            f"--unscale: {sizes.vocab} rows are CPM-2's vocabulary, and CPM-2 was never scaled.\n"
            "Use --unscale only for PPT's converted T5 shards."
        )
    if tokenizer is None:
        return special_ids(sizes.vocab, t5=unscale)
    ids = read_vocabulary(tokenizer)
    if len(ids) != sizes.vocab:
        raise UserError(
            f"--tokenizer {tokenizer}: {len(ids)} lines, but the model has {sizes.vocab} rows."
        )
    return SpecialIds(pad=ids["<pad>"], eos=ids["<eod>"], start=ids["<s>"])


def _write_prompt(folder: Path, prompt: Tensor, *, unscale: bool) -> None:
    entry = Entry(PROMPT_NAME, tuple(prompt.shape), prompt.dtype)
    times = UNIT if unscale else 1.0  # a prompt is scaled like the embeddings
    write_file(folder / PROMPT_FILE, [entry], lambda _: converted(prompt, entry, times))
