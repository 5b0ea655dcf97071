"""The tokenizer of a backbone's folder, set to what prompts need."""

from pathlib import Path
from typing import Any

from ptrun.backbone.cpm2_text import is_cpm2

BYTE_LEVEL = ("roberta", "gpt2", "deberta")
"""Model types whose words begin with their space."""


def load(folder: Path, model_type: str, *, words: bool) -> Any:
    """Return a folder's tokenizer.

    `words` is for input that is split into words already: byte-level tokenizers then put the space
    before the first one too. T5's appends no `</s>`: prompts and patterns say how an input ends
    (PPT: never with it).
    """
    from transformers import AutoTokenizer

    if is_cpm2(folder):
        from ptrun.backbone.cpm2_tokenizer import Cpm2Tokenizer

        return Cpm2Tokenizer.from_pretrained(folder)
    extra = {"add_prefix_space": True} if words and model_type in BYTE_LEVEL else {}
    made = AutoTokenizer.from_pretrained(folder, **extra)
    if model_type in ("t5", "mt5"):
        _end_nothing(made)
    return made


def _end_nothing(tokenizer: Any) -> None:
    """Take the end mark from what a tokenizer makes of one text or two."""
    from tokenizers.processors import TemplateProcessing

    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="$A", pair="$A $B", special_tokens=[]
    )
