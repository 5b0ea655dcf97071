"""CPM-2's rules for text: its vocabulary file, text to tokens and back. No torch, no transformers.

jieba cuts a text into words; inside a word the longest entry of the vocabulary is taken again and
again. A space is the token ▂, a newline the token ▃.

The Chinese-English vocabulary, known by its "##" entries, has two rules more: what continues a word
without Chinese characters carries "##", and a ▂ between two tokens without Chinese characters is
left out. The authors' code looks for id 10 there, a comma in this vocabulary; we look for ▂. Which
spaces were left out cannot be known afterwards: decoding puts one between any two such tokens.
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
    """Tell whether a folder's tokenizer is CPM-2's, from its tokenizer_config.json."""
    file = folder / "tokenizer_config.json"
    if not file.is_file():
        return False
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise UserError(f"{file}: not JSON ({error.msg}).") from error
    return isinstance(settings, dict) and settings.get("tokenizer_class") == CLASS


def read_vocabulary(file: Path) -> dict[str, int]:
    """Return token to id, the number of its line.

    Raises:
        UserError: no such file, not text, an entry twice, or a special token is missing.
    """
    if not file.is_file():
        raise UserError(f"{file}: no such file; expected CPM-2's vocab.txt, one token a line.")
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
    """Copy a vocabulary into a model's folder, with the file that names its tokenizer."""
    shutil.copyfile(vocabulary, folder / "vocab.txt")
    settings = json.dumps({"tokenizer_class": CLASS, "q2b": True}, indent=2)
    (folder / "tokenizer_config.json").write_text(settings + "\n", encoding="utf-8")


class Cpm2Text:
    """Cuts text into tokens of a vocabulary, and puts tokens together again.

    Args:
        ids: token to id.
        q2b: turn full-width letters, digits and most signs into half-width ones first, as
            CPM-2's fine-tuning code does; PPT's code does not.
    """

    def __init__(self, ids: Mapping[str, int], *, q2b: bool):
        self.ids, self.q2b = ids, q2b
        self.bilingual = any(token != CONTINUES and token.startswith(CONTINUES) for token in ids)
        self._longest = max(map(len, ids))

    def tokens(self, text: str) -> list[str]:
        """Return the tokens of a text; what the vocabulary lacks becomes `<unk>`.

        Raises:
            UserError: jieba is not installed.
        """
        words = _jieba().cut(text.translate(_HALF) if self.q2b else text)
        found = [token for word in words for token in self.word(word.translate(_MARKS))]
        return _without_spaces(found) if self.bilingual else found

    def word(self, word: str) -> list[str]:
        """Return the tokens of one word, the longest entry first."""
        if len(word) > LONGEST_WORD:
            return [SPECIAL["unk_token"]]
        found, start = [], 0
        while start < len(word):
            token, start = self._first(word, start)
            found.append(token)
        return found

    def text(self, tokens: Sequence[str]) -> str:
        """Return the text of tokens; control tokens are shown as they are."""
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
        """Return tokens as text, with the spaces that were left out."""
        parts, before = [], SPACE
        for token in tokens:
            if token != CONTINUES and token.startswith(CONTINUES):
                parts.append(token.removeprefix(CONTINUES))
            else:
                parts.append(" " + token if _is_word(before) and _is_word(token) else token)
            before = token
        return "".join(parts)


def _without_spaces(tokens: list[str]) -> list[str]:
    """Leave out each ▂ between two tokens without Chinese characters."""
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
    """Tell whether a left-out space may have stood beside a token."""
    return _is_foreign(token) and token != NEWLINE and not _CONTROL.fullmatch(token)


@cache
def _jieba() -> Any:
    """Return jieba's word cutter, loaded in silence."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # 0.42.1 has escapes that newer Pythons warn of
            import jieba  # type: ignore[import-untyped]
    except ImportError as error:
        raise UserError(
            "CPM-2's tokenizer cuts words with jieba, which is not installed.\n"
            "Type: pip install 'ptrun[zh]'"
        ) from error
    jieba.setLogLevel(logging.ERROR)
    cutter = jieba.Tokenizer()
    # jieba's own start leaves a cache in the temporary folder, and trusts one it finds there.
    cutter.FREQ, cutter.total = cutter.gen_pfdict(cutter.get_dict_file())
    cutter.initialized = True
    return cutter
