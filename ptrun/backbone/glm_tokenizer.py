"""GLM's tokenizer: GPT-2's byte-level BPE, special tokens after it, and how a text is framed.

    Tokenizer.from_file("tokenizer.json")        GPT-2's, or any byte-level BPE with <|endoftext|>
    add_special(made)                            50257 … 50265 after GPT-2's 50,257 entries
    PreTrainedTokenizerFast(tokenizer_object=made, **ROLES)

One text is `[CLS] A <|endoftext|>`, two are `[CLS] A [SEP] B <|endoftext|>`; padding is
<|endoftext|> too. Masks take the spaces before them away, as in the authors' code (THUDM/GLM,
data_utils/tokenization.py); [dBLOCK] is there in pre-training alone.
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
"""What comes after the text's own entries, in the order of their ids."""

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
"""The settings of a tokenizer of transformers."""


def add_special(made: "Tokenizer") -> None:
    """Give a byte-level tokenizer GLM's special tokens and frame.

    Raises:
        UserError: it has no <|endoftext|>.
    """
    from tokenizers import AddedToken

    if made.token_to_id(END) is None:
        raise UserError(f"this tokenizer has no {END}; expected GPT-2's byte-level BPE.")
    masks = (MASK, *SPAN_MASKS)
    made.add_special_tokens([END])
    made.add_special_tokens(
        [AddedToken(token, lstrip=token in masks, special=True) for token in SPECIAL]
    )
    made.post_processor = _frame(made)


def write(made: "Tokenizer", folder: Path) -> None:
    """Write what transformers loads a tokenizer from."""
    made.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **ROLES}
    text = json.dumps(settings, indent=2) + "\n"
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")


def _frame(made: "Tokenizer") -> Any:
    from tokenizers.processors import TemplateProcessing

    return TemplateProcessing(
        single=f"{CLS} $A {END}",
        pair=f"{CLS} $A {SEP} $B {END}",
        special_tokens=[(token, made.token_to_id(token)) for token in (CLS, SEP, END)],
    )
