"""CPM-2's vocabulary file and its rules from text to tokens and back. No torch, no transformers.

jieba cuts a text into words. Each word is split greedily into the longest entries of the
vocabulary. A space is the token ▂, a newline the token ▃.

The Chinese-English vocabulary, recognized by its "##" entries, has two more rules. A token without
Chinese characters that continues a word carries "##". A ▂ between two tokens without Chinese
characters is dropped; the authors' code looks for id 10, a comma in this vocabulary. Decoding
cannot know the dropped spaces and puts one between any two such tokens.
"""

import json
import logging
import re
import shutil
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ptrun.errors import UserError
from ptrun.files import read_json

CLASS = "Cpm2Tokenizer"
SPECIAL = {
    "unk_token": "<unk>",
    "bos_token": "<s>",
    "eos_token": "<eod>",
    "sep_token": "<sep>",
    "pad_token": "<pad>",
    "mask_token": "<mask>",
}
SPACE, NEWLINE, CONTINUES = "▂", "▃", "##"
LONGEST_WORD = 200  # in characters; the authors' limit

_MARKS = str.maketrans({" ": SPACE, "\n": NEWLINE})
_STAY_FULL = "，。！（）？、；："  # noqa: RUF001  Chinese punctuation keeps its width
_HALF = {wide: wide - 0xFEE0 for wide in range(0xFF01, 0xFF5F) if chr(wide) not in _STAY_FULL}
_HALF[0x3000] = ord(" ")
_CONTROL = re.compile(r"<(s|/s|sep|pad|mask|go|eod|s_\d+)>")


def is_cpm2(folder: Path) -> bool:
    """Return whether the tokenizer_config.json of a folder names CPM-2's tokenizer."""
    file = folder / "tokenizer_config.json"
    if not file.is_file():
        return False
    try:
        settings = read_json(file, links=True)
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: not JSON ({error}).") from error
    return isinstance(settings, dict) and settings.get("tokenizer_class") == CLASS


def read_vocabulary(file: Path) -> dict[str, int]:
    """Return ids by token; the id is the line number, from 0.

    Raises:
        UserError: the file is missing, is not text, repeats an entry or lacks a special token.
    """
    if not file.is_file():
        raise UserError(f"{file}: no such file; expected CPM-2's vocab.txt, one token per line.")
    try:
        lines = file.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: not text; expected CPM-2's vocab.txt.") from error
    ids = {line.strip(): number for number, line in enumerate(lines)}
    if len(ids) < len(lines):
        raise UserError(f"{file}: {len(lines) - len(ids)} of {len(lines)} lines are repeated.")
    if absent := [token for token in (*SPECIAL.values(), SPACE, NEWLINE) if token not in ids]:
        raise UserError(f"{file}: not a CPM-2 vocabulary; it has no {', '.join(absent)}.")
    return ids


def write_tokenizer(vocabulary: Path, folder: Path) -> None:
    """Copy a vocabulary into a model folder and write the tokenizer_config.json."""
    shutil.copyfile(vocabulary, folder / "vocab.txt")
    settings = json.dumps({"tokenizer_class": CLASS, "q2b": True}, indent=2)
    (folder / "tokenizer_config.json").write_text(settings + "\n", encoding="utf-8")


class Cpm2Text:
    """Splits text into tokens of a vocabulary and joins tokens to text.

    Args:
        ids: ids by token.
        q2b: convert full-width letters, digits and most signs to half-width ones first, as CPM-2's
            fine-tuning code does; PPT's code does not.

    >>> from ptrun.backbone.cpm2_text import Cpm2Text
    >>> Cpm2Text({"好": 0, "电": 1, "影": 2}, q2b=False).word("好电影")
    ['好', '电', '影']
    """

    def __init__(self, ids: Mapping[str, int], *, q2b: bool):
        self.ids, self.q2b = ids, q2b
        self.bilingual = any(token != CONTINUES and token.startswith(CONTINUES) for token in ids)
        self._longest = max(map(len, ids))

    def tokens(self, text: str) -> list[str]:
        """Return the tokens of a text, `<unk>` for characters that the vocabulary lacks.

        Raises:
            UserError: jieba is not installed.
        """
        words = _jieba().cut(text.translate(_HALF) if self.q2b else text)
        tokens = [token for word in words for token in self.word(word.translate(_MARKS))]
        return _without_spaces(tokens) if self.bilingual else tokens

    def word(self, word: str) -> list[str]:
        """Return the tokens of one word, the longest entry first."""
        if len(word) > LONGEST_WORD:
            return [SPECIAL["unk_token"]]
        tokens, start = [], 0
        while start < len(word):
            token, start = self._first(word, start)
            tokens.append(token)
        return tokens

    def text(self, tokens: Sequence[str]) -> str:
        """Return the text of tokens; control tokens stay unchanged."""
        shown = self._joined(tokens) if self.bilingual else "".join(tokens)
        return shown.replace(SPACE, " ").replace(NEWLINE, "\n")

    def _first(self, word: str, start: int) -> tuple[str, int]:
        """Return the longest entry at `start`, and where it ends."""
        for end in range(min(len(word), start + self._longest), start, -1):
            piece = word[start:end]
            if self.bilingual and start and not _is_chinese(piece):
                piece = CONTINUES + piece
            if piece in self.ids:
                return piece, end
        return SPECIAL["unk_token"], start + 1

    def _joined(self, tokens: Sequence[str]) -> str:
        """Join tokens, with a space where one may have been dropped."""
        parts, before = [], SPACE
        for token in tokens:
            if token != CONTINUES and token.startswith(CONTINUES):
                parts.append(token.removeprefix(CONTINUES))
            else:
                parts.append(" " + token if _is_word(before) and _is_word(token) else token)
            before = token
        return "".join(parts)


def _without_spaces(tokens: list[str]) -> list[str]:
    """Drop each ▂ between two tokens without Chinese characters."""
    return [
        token
        for i, token in enumerate(tokens)
        if token != SPACE
        or i in (0, len(tokens) - 1)
        or not (_is_foreign(tokens[i - 1]) and _is_foreign(tokens[i + 1]))
    ]


def _is_chinese(text: str) -> bool:
    return any("\u4e00" <= character <= "\u9fff" for character in text)


def _is_foreign(token: str) -> bool:
    return token != SPACE and not _is_chinese(token)


def _is_word(token: str) -> bool:
    """Return whether a dropped space may have stood beside a token."""
    return _is_foreign(token) and token != NEWLINE and not _CONTROL.fullmatch(token)


@cache
def _jieba() -> Any:
    """Return jieba's word cutter, loaded without messages."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # 0.42.1 has escapes that newer Pythons warn of
            import jieba  # type: ignore[import-untyped]
    except ImportError as error:
        raise UserError(
            "CPM-2's tokenizer needs jieba, which is not installed; type pip install 'ptrun[zh]'."
        ) from error
    jieba.setLogLevel(logging.ERROR)
    cutter = jieba.Tokenizer()
    # jieba's own start writes a cache to the temporary folder and trusts one that it finds there.
    cutter.FREQ, cutter.total = cutter.gen_pfdict(cutter.get_dict_file())
    cutter.initialized = True
    return cutter
