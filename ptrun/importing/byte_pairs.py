"""The files of a byte-level BPE (GPT-2's or RoBERTa's), and their tokenizer."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptrun.errors import UserError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

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
    """Return the BPE of a folder's tokenizer.json, or of its vocab.json and merges.txt.

    Raises:
        UserError: the files are missing, cannot be read, or hold another kind of tokenizer.
    """
    whole, halves = folder / "tokenizer.json", (folder / "vocab.json", folder / "merges.txt")
    if not whole.is_file() and not all(file.is_file() for file in halves):
        raise UserError(
            f"--tokenizer {folder}: expected a folder with tokenizer.json, or with vocab.json and "
            "merges.txt."
        )
    try:
        pairs = _from_whole(whole) if whole.is_file() else _from_halves(*halves)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"--tokenizer {folder}: its files do not hold a BPE; expected GPT-2's or RoBERTa's."
        ) from error
    if absent := [c for c in BYTES if c not in pairs.vocabulary]:
        raise UserError(
            f"--tokenizer {folder}: {len(absent)} of 256 bytes have no token; expected the "
            "byte-level BPE of GPT-2."
        )
    return pairs


def _json(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def _from_whole(file: Path) -> BytePairs:
    content = _json(file)
    model, added = content["model"], content.get("added_tokens", [])
    pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
    vocabulary = dict(model["vocab"]) | {token["content"]: token["id"] for token in added}
    return BytePairs(vocabulary, [(left, right) for left, right in pairs])


def _from_halves(vocabulary: Path, merges: Path) -> BytePairs:
    lines = merges.read_text(encoding="utf-8").split("\n")
    pairs = [line.split(" ") for line in lines if line.strip() and not line.startswith("#version")]
    return BytePairs(dict(_json(vocabulary)), [(left, right) for left, right in pairs])
