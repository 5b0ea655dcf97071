"""Tokenizer files of GPT-2's kind, small: all bytes, a few merges, the end; and fairseq's."""

import json
from itertools import pairwise
from pathlib import Path

MERGES = ["Ġ t", "h e", "Ġ a", "Ġt he", "i n", "# #", "g o", "o d", "go od", "Ġ good"]


SHOWN = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
ORDER = SHOWN + [b for b in range(256) if b not in SHOWN]
"""GPT-2's bytes: printable ones first, then the others, whose characters are from U+0100 on."""


def characters():
    return [*map(chr, SHOWN), *(chr(256 + i) for i in range(256 - len(SHOWN)))]


def tokens():
    return [*characters(), *(merge.replace(" ", "") for merge in MERGES), "<|endoftext|>"]


def write_gpt2(folder: Path) -> Path:
    """Write vocab.json and merges.txt."""
    return write_files(folder, {token: i for i, token in enumerate(tokens())})


def write_files(folder, ids):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps(ids), encoding="utf-8")
    merges = "\n".join(["#version: 0.2", *MERGES]) + "\n"
    (folder / "merges.txt").write_text(merges, encoding="utf-8")
    return folder


def write_dictionary(folder: Path, symbols) -> Path:
    """Write fairseq's dict.txt, counts falling."""
    lines = [f"{symbol} {10 * (len(symbols) - i)}" for i, symbol in enumerate(symbols)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "dict.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "dict.txt"


def fairseq_ids(text, symbols, gpt2_ids):
    """Return what fairseq makes of a text: GPT-2's ids, looked up as words of the dictionary."""
    table = {symbol: 4 + line for line, symbol in enumerate(symbols)}
    return [table.get(str(i), 3) for i in gpt2_ids(text)]


def byte_pair_ids(ids):
    """Return a slow BPE: the first merge of the list that applies, again and again."""
    ranks = {tuple(merge.split(" ")): i for i, merge in enumerate(MERGES)}

    def encode(text):
        parts = [characters()[ORDER.index(b)] for b in text.encode()]
        while found := [p for p in pairwise(parts) if p in ranks]:
            parts = _merged(parts, min(found, key=ranks.__getitem__))
        return [ids[part] for part in parts]

    return encode


def _merged(parts, pair):
    out = []
    for part in parts:
        joined = out and (out[-1], part) == pair
        out[-1:] = [out[-1] + part] if joined else [*out[-1:], part]
    return out
