"""CPM-2's vocabulary file, and the words of a text. No torch, no transformers."""

import json
import logging
import shutil
import warnings
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
SPACE, NEWLINE = "▂", "▃"


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
    """Return ids by token, the line numbers from 0; refuse what is not CPM-2's Chinese file."""
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
    if any(token.startswith("##") and token != "##" for token in ids):
        raise UserError(f"{file}: CPM-2's Chinese-English vocabulary; use the Chinese one.")
    return ids


def write_tokenizer(vocabulary: Path, folder: Path) -> None:
    """Copy a vocabulary into a model folder and write the tokenizer_config.json."""
    shutil.copyfile(vocabulary, folder / "vocab.txt")
    settings = json.dumps({"tokenizer_class": CLASS, "q2b": True}, indent=2)
    (folder / "tokenizer_config.json").write_text(settings + "\n", encoding="utf-8")


@cache
def jieba() -> Any:
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
