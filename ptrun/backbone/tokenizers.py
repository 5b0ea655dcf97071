"""The tokenizer of a backbone's folder, set to what prompts need."""

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from ptrun.backbone.cpm2_text import is_cpm2
from ptrun.errors import UserError

Kind = Literal["wordpiece", "bpe", "sentencepiece", "cpm2"]
_BYTE_LEVEL = ("roberta", "gpt2", "deberta", "blocklm", "megatron")
_HOSTED = ("blocklm", "megatron")  # kinds of model that the library does not know
_ENDING = ("t5", "mt5")
FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "tokenizer.model")
_BESIDE = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "merges.txt")


def kind_of(folder: Path, model_type: str) -> Kind:
    """Return the kind of tokenizer a local folder holds, as far as it matters here."""
    if is_cpm2(folder):
        return "cpm2"
    if model_type in _BYTE_LEVEL:
        return "bpe"
    return "sentencepiece" if model_type in _ENDING else "wordpiece"


def load(folder: Path, model_type: str, kind: Kind | None = None, *, words: bool = False) -> Any:
    """Return a folder's tokenizer.

    `words` is for input that is split into words already: byte-level tokenizers then put the space
    before the first one too. T5's appends no `</s>`: prompts and patterns say how an input ends
    (PPT: never with it).

    Raises:
        UserError: the folder has none that can be read, or a package for it is missing.
    """
    kind = kind or kind_of(folder, model_type)
    if not any((folder / name).is_file() for name in FILES):  # the library makes up an empty one
        raise UserError(
            f"{folder}: no tokenizer there; expected one of {', '.join(FILES)}.\n"
            "Copy it from where the model comes from (ptrun import ... --tokenizer FROM)."
        )
    if kind == "cpm2":
        from ptrun.backbone.cpm2_tokenizer import Cpm2Tokenizer

        return Cpm2Tokenizer.from_pretrained(folder)
    if not (folder / "tokenizer.json").is_file() and kind == "sentencepiece":
        _need_sentencepiece(folder)
    extra = {"add_prefix_space": True} if words and kind == "bpe" else {}
    made = _read(folder, extra, hosted=model_type in _HOSTED)
    if extra:
        _space_first(made)
    if model_type in _ENDING:
        _end_nothing(made)
    return made


def copy(folder: Path, there: Path) -> None:
    """Copy a tokenizer's files as they are; saved anew, T5's would lack its end mark."""
    for file in (folder / name for name in (*FILES, *_BESIDE)):
        if file.is_file():
            shutil.copyfile(file, there / file.name)


def _read(folder: Path, extra: dict[str, Any], *, hosted: bool) -> Any:
    """Return what the library makes of a folder, whose model it need not know."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    kind: Any = PreTrainedTokenizerFast if hosted else AutoTokenizer
    try:
        return kind.from_pretrained(folder, **extra)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0][:120]
        raise UserError(
            f"backbone.path={folder}: its tokenizer cannot be read ({reason}).\n"
            "Expected tokenizer.json, or the files that model.save_pretrained's tokenizer writes."
        ) from error


def _space_first(tokenizer: Any) -> None:
    """Put the space before the first word where the library passed over the request (5.23)."""
    splitter = tokenizer.backend_tokenizer.pre_tokenizer
    if hasattr(splitter, "add_prefix_space"):
        splitter.add_prefix_space = True


def _need_sentencepiece(folder: Path) -> None:
    if find_spec("sentencepiece") is None:
        raise UserError(
            f"backbone.path={folder}: its tokenizer needs a package; "
            "type pip install 'ptrun[sentencepiece]'."
        )


def _end_nothing(tokenizer: Any) -> None:
    """Take the end mark from what a tokenizer makes of one text or two."""
    from tokenizers.processors import TemplateProcessing

    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="$A", pair="$A $B", special_tokens=[]
    )
