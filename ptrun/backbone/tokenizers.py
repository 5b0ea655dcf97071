"""Loads the tokenizer of a backbone's folder with the settings that prompts need."""

import hashlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from ptrun.errors import UserError, is_panic
from ptrun.files import read_bytes, read_json

Kind = Literal["wordpiece", "bpe", "sentencepiece", "cpm2"]
_BYTE_LEVEL = ("roberta", "gpt2", "deberta")
_ENDING = ("t5", "mt5")
_PACKAGES = {"sentencepiece": "sentencepiece", "protobuf": "google"}  # and a module of each
_PIECES = "sentencepiece.bpe.model"  # not read beside a tokenizer.json
FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "tokenizer.model", _PIECES)
_OF_PROCESSOR = "chat_template.json"
TEMPLATES = ("chat_template.jinja", "additional_chat_templates/*.jinja", _OF_PROCESSOR)
"""In no fingerprint: the ids of runs that render conversations have the template's text."""
BESIDE = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "merges.txt")


def kind_of(model_type: str) -> Kind:
    """Return the kind of tokenizer of a model type."""
    if model_type in _BYTE_LEVEL:
        return "bpe"
    return "sentencepiece" if model_type in _ENDING else "wordpiece"


_LARGEST = 250_000_000  # bytes of a file


def digest(folder: Path) -> str:
    """Return a hash (16 hex digits) of all files that decide how a text becomes token ids."""
    hashed = hashlib.sha256()
    for name in sorted((*FILES, *BESIDE)):
        file = folder / name
        content = read_bytes(file, _LARGEST, links=True) if file.is_file() else b""
        if name != _PIECES or (content and not (folder / "tokenizer.json").is_file()):
            hashed.update(f"{name} ".encode() + content)
    return hashed.hexdigest()[:16]


def load(folder: Path, model_type: str, kind: Kind | None = None, *, words: bool = False) -> Any:
    """Return the tokenizer of a folder; refuse a folder without a readable one.

    `words` is for input that is already split into words: byte-level tokenizers then also put a
    space before the first word. T5's appends no `</s>`, since patterns decide how an input ends
    (PPT never appends it).
    """
    kind = kind or kind_of(model_type)
    if not any((folder / name).is_file() for name in FILES):  # else the library makes an empty one
        raise UserError(
            f"{folder}: no tokenizer there; expected one of {', '.join(FILES)}.\n"
            "Copy it from the source of the model, or type ptrun import ... --tokenizer FROM."
        )
    check_packages(folder, model_type, kind)
    from tokenizers.processors import TemplateProcessing
    from transformers import CONFIG_MAPPING, AutoTokenizer, PreTrainedTokenizerFast

    # 1. Read its files
    spaced = words and kind == "bpe"
    library: Any = AutoTokenizer if model_type in CONFIG_MAPPING else PreTrainedTokenizerFast
    try:
        tokenizer = library.from_pretrained(folder, **{"add_prefix_space": True} if spaced else {})
        if not tokenizer.chat_template and (folder / _OF_PROCESSOR).is_file():
            tokenizer.chat_template = read_json(folder / _OF_PROCESSOR, links=True)["chat_template"]
    except BaseException as error:  # the library raises what it meets first, also a Rust panic
        if isinstance(error, UserError) or not (isinstance(error, Exception) or is_panic(error)):
            raise
        reason = " ".join(str(error).split())[:120]
        raise UserError(
            f"backbone.path={folder}: cannot read its tokenizer ({reason}).\n"
            "Expected tokenizer.json, or the files that tokenizer.save_pretrained(FOLDER) writes."
        ) from error
    if spaced and hasattr(tokenizer.backend_tokenizer.pre_tokenizer, "add_prefix_space"):
        # the library may ignore the option (5.23)
        tokenizer.backend_tokenizer.pre_tokenizer.add_prefix_space = True
    # 2. Set the special tokens around texts where the library's are not the model's own (5.23)
    if model_type in _ENDING:  # patterns decide how an input ends
        frame = TemplateProcessing(single="$A", pair="$A $B", special_tokens=[])
        tokenizer.backend_tokenizer.post_processor = frame
    if model_type == "deberta":  # the library puts two [SEP] between texts, as RoBERTa does
        cls, sep = tokenizer.cls_token, tokenizer.sep_token
        single = f"{cls}:0 $A:0 {sep}:0"
        special = [(cls, tokenizer.cls_token_id), (sep, tokenizer.sep_token_id)]
        pair = f"{single} $B:1 {sep}:1"
        frame = TemplateProcessing(single=single, pair=pair, special_tokens=special)
        tokenizer.backend_tokenizer.post_processor = frame
    return tokenizer


def check_packages(folder: Path, model_type: str, kind: Kind | None = None) -> None:
    """Refuse a tokenizer that needs a package which is not installed; reads names of files only."""
    kind = kind or kind_of(model_type)
    needs = kind == "sentencepiece" or (folder / _PIECES).is_file()
    if not needs or (folder / "tokenizer.json").is_file():
        return
    if absent := [name for name, module in _PACKAGES.items() if find_spec(module) is None]:
        raise UserError(
            f"{folder}: its tokenizer needs the package {' and '.join(absent)}.\n"
            "Type pip install 'ptrun[sentencepiece]'."
        )


def copy(folder: Path, there: Path) -> None:
    """Copy the files of a tokenizer; if saved again, T5's would lack `</s>`."""
    for name in (*FILES, *BESIDE, *TEMPLATES):
        for file in folder.glob(name):
            copied = there / file.relative_to(folder)
            copied.parent.mkdir(exist_ok=True)
            copied.write_bytes(read_bytes(file, _LARGEST, links=True))
