"""The files of a byte-level BPE (GPT-2's, RoBERTa's), and the tokenizer that they make."""

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
"""The characters that stand for bytes, in the order of their ids in GPT-2."""


@dataclass(frozen=True)
class BytePairs:
    """A vocabulary, token to id, and the pairs that are merged, first ones first."""

    vocabulary: dict[str, int]
    merges: list[tuple[str, str]]

    def gpt2_tokens(self) -> list[str]:
        """Return the tokens as GPT-2 numbers them: bytes, what the merges make, the end."""
        return [*BYTES, *("".join(pair) for pair in self.merges), END]

    def made(self) -> "Tokenizer":
        """Return the tokenizer; it adds nothing before or after a text."""
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers

        tokenizer = Tokenizer(models.BPE(self.vocabulary, self.merges))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        return tokenizer


def read_byte_pairs(folder: Path) -> BytePairs:
    """Return what a folder's tokenizer.json holds, or its vocab.json and merges.txt.

    Raises:
        UserError: neither is there, they cannot be read, or are of another kind.
    """
    whole, apart = folder / "tokenizer.json", (folder / "vocab.json", folder / "merges.txt")
    if not whole.is_file() and not all(file.is_file() for file in apart):
        raise UserError(
            f"--tokenizer {folder}: expected a folder with tokenizer.json, or with vocab.json and "
            "merges.txt."
        )
    try:
        found = _whole(_json(whole)) if whole.is_file() else _apart(*apart)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"--tokenizer {folder}: its files are not those of a BPE.") from error
    if absent := [c for c in BYTES if c not in found.vocabulary]:
        raise UserError(
            f"--tokenizer {folder}: {len(absent)} of 256 bytes have no token; expected the "
            "byte-level BPE of GPT-2."
        )
    return found


def _json(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def _whole(held: dict[str, Any]) -> BytePairs:
    model = held["model"]
    pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
    added = {token["content"]: token["id"] for token in held.get("added_tokens", [])}
    return BytePairs(dict(model["vocab"]) | added, _pairs(pairs))


def _apart(vocabulary: Path, merges: Path) -> BytePairs:
    lines = merges.read_text(encoding="utf-8").split("\n")
    pairs = [line.split(" ") for line in lines if line.strip() and not line.startswith("#version")]
    return BytePairs(dict(_json(vocabulary)), _pairs(pairs))


def _pairs(pairs: list[list[str]]) -> list[tuple[str, str]]:
    return [(left, right) for left, right in pairs]
