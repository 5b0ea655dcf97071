"""GLM's tokenizer: GPT-2's byte-level BPE with more special tokens and a frame around each text.

    Tokenizer.from_file("tokenizer.json")        GPT-2's, or any byte-level BPE with <|endoftext|>
    add_special(tokenizer)                       50257 … 50265 after GPT-2's 50,257 entries
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **ROLES)

One text is `[CLS] A <|endoftext|>`, two are `[CLS] A [SEP] B <|endoftext|>`; padding is
<|endoftext|> too. Masks remove the spaces before them, as in the authors' code (THUDM/GLM,
data_utils/tokenization.py). Only pre-training uses [dBLOCK].
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptrun.errors import UserError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

END, START_OF_PIECE, END_OF_PIECE = "<|endoftext|>", "<|startofpiece|>", "<|endofpiece|>"
CLS, MASK, SEP, UNK = "[CLS]", "[MASK]", "[SEP]", "[UNK]"
SPAN_MASKS, BLOCK = ("[gMASK]", "[sMASK]"), "[dBLOCK]"
SPECIAL = (START_OF_PIECE, END_OF_PIECE, CLS, MASK, SEP, UNK, *SPAN_MASKS, BLOCK)
"""The special tokens after GPT-2's entries, in the order of their ids."""

ROLES: dict[str, Any] = {
    "eos_token": END,
    "pad_token": END,
    "unk_token": UNK,
    "cls_token": CLS,
    "sep_token": SEP,
    "mask_token": MASK,
    "additional_special_tokens": [START_OF_PIECE, END_OF_PIECE, *SPAN_MASKS, BLOCK],
    "model_input_names": ["input_ids", "attention_mask"],
}
"""The tokenizer settings for transformers."""


def add_special(tokenizer: "Tokenizer") -> None:
    """Add GLM's special tokens and frame to a byte-level tokenizer.

    Raises:
        UserError: it has no <|endoftext|>.
    """
    from tokenizers import AddedToken
    from tokenizers.processors import TemplateProcessing

    if tokenizer.token_to_id(END) is None:
        raise UserError(f"the tokenizer has no {END}; expected GPT-2's byte-level BPE.")
    masks = (MASK, *SPAN_MASKS)
    tokenizer.add_special_tokens([END])
    tokenizer.add_special_tokens(
        [AddedToken(token, lstrip=token in masks, special=True) for token in SPECIAL]
    )
    tokenizer.post_processor = TemplateProcessing(
        single=f"{CLS} $A {END}",
        pair=f"{CLS} $A {SEP} $B {END}",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (CLS, SEP, END)],
    )


def write(tokenizer: "Tokenizer", folder: Path) -> None:
    """Write the files from which transformers loads a tokenizer."""
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **ROLES}
    text = json.dumps(settings, indent=2) + "\n"
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")
