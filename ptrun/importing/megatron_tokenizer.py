"""Megatron-11B's tokenizer: GPT-2's BPE with fairseq's ids; it adds no special tokens to a text.

fairseq's dictionary (dict.txt) has lines `SYMBOL COUNT`. A symbol is GPT-2's id of a token, or a
filler such as madeupword0000. Line n has the id 4 + n, after <s>, <pad>, </s> and <unk>. RoBERTa's
files already have such ids.
"""

import json
from pathlib import Path

from ptrun.errors import UserError
from ptrun.importing.byte_pairs import END, BytePairs, read_byte_pairs

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
DICTIONARY = "dict.txt"
_NEVER = "<mask>"  # RoBERTa's; Megatron-11B was trained without
_FILLER = "madeupword"
_SETTINGS = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    **dict(zip(("bos_token", "pad_token", "eos_token", "unk_token"), SPECIAL, strict=True)),
    "model_input_names": ["input_ids", "attention_mask"],
}


def read_tokenizer(folder: Path, source: Path, rows: int) -> BytePairs:
    """Return the BPE with fairseq's ids.

    Args:
        folder: GPT-2's files, or RoBERTa's.
        source: the checkpoint, whose dict.txt gives the ids.
        rows: number of rows of the model's embeddings.

    Raises:
        UserError: the files are of another kind, or do not fit the dictionary or the model.
    """
    pairs, file = read_byte_pairs(folder), source / DICTIONARY
    ids = _from_dictionary(pairs, file) if file.is_file() else None
    if all(pairs.vocabulary.get(token) == i for i, token in enumerate(SPECIAL)):
        ids = _checked(pairs.vocabulary, ids, folder)
    elif ids is None:
        raise UserError(f"--tokenizer {folder}: GPT-2's files need {file}, which is missing.")
    elif pairs.vocabulary != {token: i for i, token in enumerate(pairs.gpt2_tokens())}:
        raise UserError(f"--tokenizer {folder}: neither GPT-2's vocabulary nor RoBERTa's.")
    if max(ids.values()) >= rows:
        raise UserError(
            f"--tokenizer {folder}: ids up to {max(ids.values())}, but the model has {rows} rows."
        )
    return BytePairs(ids, pairs.merges)


def write_tokenizer(pairs: BytePairs, folder: Path) -> None:
    """Write the files from which transformers loads the tokenizer."""
    tokenizer = pairs.tokenizer()
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.save(str(folder / "tokenizer.json"))
    text = json.dumps(_SETTINGS, indent=2) + "\n"
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")


def _checked(
    vocabulary: dict[str, int], ids: dict[str, int] | None, folder: Path
) -> dict[str, int]:
    """Return RoBERTa's ids, or those of a dictionary that agrees with them."""
    if ids is None:
        return {token: i for token, i in vocabulary.items() if token != _NEVER}
    for token, i in ids.items():
        if vocabulary.get(token) != i and not token.startswith(_FILLER):
            raise UserError(
                f"--tokenizer {folder}: {token!r} is {vocabulary.get(token)}, but {i} by the "
                f"checkpoint's {DICTIONARY}."
            )
    return ids


def _from_dictionary(pairs: BytePairs, file: Path) -> dict[str, int]:
    tokens = pairs.gpt2_tokens()
    ids = {token: i for i, token in enumerate(SPECIAL)}
    try:
        lines = file.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: not text; expected fairseq's dictionary.") from error
    for number, line in enumerate(lines, 1):
        token = _token(line, tokens, f"{file}, line {number}")
        if token in ids:
            raise UserError(f"{file}, line {number}: {line!r} occurs twice.")
        ids[token] = len(ids)
    if absent := [token for token in tokens if token not in ids and token != END]:
        raise UserError(f"{file}: {len(absent)} of GPT-2's tokens missing, e.g. {absent[0]!r}.")
    return ids


def _token(line: str, tokens: list[str], place: str) -> str:
    symbol, _, count = line.rstrip().partition(" ")
    if count.isdecimal() and symbol.startswith(_FILLER):
        return symbol
    if count.isdecimal() and symbol.isdecimal() and int(symbol) < len(tokens):
        return tokens[int(symbol)]
    raise UserError(
        f"{place}: {line[:40]!r}; expected an id of GPT-2 below {len(tokens)}, or {_FILLER}0000, "
        "and a count."
    )
