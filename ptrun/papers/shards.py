"""The files of published checkpoints: one per rank or part, and byte-level BPE."""

import json
import re
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ptrun.errors import UserError
from ptrun.hub.pickled import open_file
from ptrun.papers.parts import Target

if TYPE_CHECKING:
    from tokenizers import Tokenizer


# The files of a DeepSpeed checkpoint: one per rank, with the tensors under `module`.

LATEST = ("latest_checkpointed_iteration.txt", "latest")  # name the folder of the ranks' weights
_SAME = ("iteration", "global_steps", "mp_world_size")


def read_ranks(source: Path, otherwise: str = "") -> list[dict[str, Tensor]]:
    """Return the tensors of ranks 0, 1, … of one checkpoint.

    Args:
        source: the folder with `latest_checkpointed_iteration.txt` or `latest`, or with the
            mp_rank files.
        otherwise: other accepted files, for the message that there is no checkpoint.
    """
    name = "mp_rank_{:02d}_model_states.pt"
    files = numbered(folder_of(source), r"mp_rank_(\d+)_model_states\.pt", name)
    if not files:
        raise UserError(
            f"{source}: no checkpoint there; expected {LATEST[0]} and\n"
            f"<iteration>/{name.format(0)}, or a folder of mp_rank files{otherwise}."
        )
    ranks = [open_file(file, ("module",), "a DeepSpeed model file") for file in files]
    folder = files[0].parent
    for key in _SAME:
        values = [rank[key] for rank in ranks if key in rank]
        if any(value != values[0] for value in values):
            raise UserError(f"{folder}: {key} differs between ranks: {values}; copy one save.")
    saved = ranks[0].get("mp_world_size", len(ranks))
    if saved != len(ranks):
        raise UserError(f"{folder}: {len(ranks)} ranks, but saved as {saved}.")
    return [rank["module"] for rank in ranks]


def folder_of(source: Path) -> Path:
    """Return the folder of the latest checkpoint, or `source` without a file that names it."""
    for name in LATEST:
        if (source / name).is_file():
            return source / (source / name).read_text(encoding="utf-8").strip()
    return source


def numbered(folder: Path, pattern: str, name: str) -> list[Path]:
    """Return the files whose names match a pattern, in the order of their numbers from 0."""
    matches = (re.fullmatch(pattern, file.name) for file in folder.glob("*"))
    files = {int(match[1]): folder / match[0] for match in matches if match}
    if absent := sorted(set(range(max(files, default=0))) - set(files)):
        names = ", ".join(name.format(number) for number in absent)
        raise UserError(f"{folder}: {names} missing; numbers there: {sorted(files)}.")
    return [files[number] for number in sorted(files)]


# The files of a checkpoint of fairseq's model-parallel training: model-model_part-0.pt and so on.
#
# Each holds `{args: argparse.Namespace, model: tensors}`.


def read_parts(source: Path) -> tuple[list[dict[str, Tensor]], list[dict[str, Any]]]:
    """Return the tensors of parts 0, 1, … of one checkpoint, and their saved settings."""
    files = numbered(source, r"model-model_part-(\d+)\.pt", "model-model_part-{}.pt")
    if not files:
        raise UserError(
            f"{source}: no checkpoint there; expected a folder with dict.txt and fairseq's\n"
            "model-model_part-0.pt, model-model_part-1.pt, …"
        )
    kind = "a fairseq checkpoint, {args, model}"
    parts = [open_file(file, ("args", "model"), kind) for file in files]
    args = [vars(part["args"]) if isinstance(part.get("args"), Namespace) else {} for part in parts]
    saved, count = args[0].get("model_parallel_size"), len(parts)
    if saved and saved != count:
        raise UserError(f"{files[0].parent}: {count} parts, but saved as {saved}.")
    return [part["model"] for part in parts], args


def weight_and_bias(
    names: tuple[str, str], shape: tuple[int, ...], axis: int | None, pieces: int = 1
) -> tuple[Target, Target]:
    """Return the targets of a layer, by its names in the model and the checkpoint.

    A bias is split if the rows of its weight are; a split of columns repeats it.
    """
    ours, theirs = names
    split = 0 if axis == 0 else None
    return (
        Target(f"{ours}.weight", f"{theirs}.weight", shape, axis, pieces),
        Target(f"{ours}.bias", f"{theirs}.bias", shape[:1], split, pieces),
    )


# The files of a byte-level BPE such as GPT-2's, and their tokenizer.

END = "<|endoftext|>"
_PRINTABLE = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
BYTES = [*map(chr, _PRINTABLE), *(chr(256 + i) for i in range(256 - len(_PRINTABLE)))]
"""The characters that represent bytes, in the order of their ids in GPT-2."""


@dataclass(frozen=True)
class BytePairs:
    """A vocabulary, token to id, and the merged pairs in order of priority."""

    vocabulary: dict[str, int]
    merges: list[tuple[str, str]]

    def gpt2_tokens(self) -> list[str]:
        """Return the tokens in the order of GPT-2's ids: bytes, merged pairs, the end token."""
        return [*BYTES, *("".join(pair) for pair in self.merges), END]

    def tokenizer(self) -> "Tokenizer":
        """Return the tokenizer; it adds no special tokens to a text."""
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers

        tokenizer = Tokenizer(models.BPE(self.vocabulary, self.merges))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        return tokenizer


def read_byte_pairs(folder: Path) -> BytePairs:
    """Return the BPE of a folder's tokenizer.json, or of its vocab.json and merges.txt."""
    single, halves = folder / "tokenizer.json", (folder / "vocab.json", folder / "merges.txt")
    if not single.is_file() and not all(file.is_file() for file in halves):
        raise UserError(f"--tokenizer {folder}: no tokenizer.json, nor vocab.json and merges.txt.")
    try:
        if single.is_file():
            content = json.loads(single.read_text(encoding="utf-8"))
            merges = content["model"]["merges"]
            added = {token["content"]: token["id"] for token in content.get("added_tokens", [])}
            vocabulary = dict(content["model"]["vocab"]) | added
        else:
            vocabulary = dict(json.loads(halves[0].read_text(encoding="utf-8")))
            lines = halves[1].read_text(encoding="utf-8").split("\n")
            merges = [line for line in lines if line.strip() and not line.startswith("#version")]
        halves_of = (pair.split(" ") if isinstance(pair, str) else pair for pair in merges)
        pairs = BytePairs(vocabulary, [(left, right) for left, right in halves_of])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"--tokenizer {folder}: its files do not hold a BPE as GPT-2's.") from error
    if absent := [c for c in BYTES if c not in pairs.vocabulary]:
        raise UserError(f"--tokenizer {folder}: {len(absent)} of 256 bytes have no token.")
    return pairs
