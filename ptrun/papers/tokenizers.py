"""Tokenizer classes that transformers lacks: those of GLM and CPM-2."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from transformers import PreTrainedTokenizer

from ptrun.errors import UserError
from ptrun.hub.convert import write_config
from ptrun.papers.cpm2_text import NEWLINE, SPACE, SPECIAL, jieba, read_vocabulary

if TYPE_CHECKING:
    from tokenizers import Tokenizer


# GLM's tokenizer: GPT-2's byte-level BPE with more special tokens and a frame around each text.
#
#     Tokenizer.from_file("tokenizer.json")        GPT-2's, or any byte-level BPE with <|endoftext|>
#     add_special(tokenizer)                       50257 … 50265 after GPT-2's 50,257 entries
#     PreTrainedTokenizerFast(tokenizer_object=tokenizer, **ROLES)
#
# One text is `[CLS] A <|endoftext|>`, two are `[CLS] A [SEP] B <|endoftext|>`; padding is
# <|endoftext|> too. Masks remove the spaces before them, as in the authors' code (THUDM/GLM,
# data_utils/tokenization.py). Only pre-training uses [dBLOCK].

END, START_OF_PIECE, END_OF_PIECE = "<|endoftext|>", "<|startofpiece|>", "<|endofpiece|>"
CLS, MASK, SEP, UNK = "[CLS]", "[MASK]", "[SEP]", "[UNK]"
SPAN_MASKS, BLOCK = ("[gMASK]", "[sMASK]"), "[dBLOCK]"
GLM_SPECIAL = (START_OF_PIECE, END_OF_PIECE, CLS, MASK, SEP, UNK, *SPAN_MASKS, BLOCK)
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
    """Add GLM's special tokens and frame to a byte-level tokenizer that has <|endoftext|>."""
    from tokenizers import AddedToken
    from tokenizers.processors import TemplateProcessing

    if tokenizer.token_to_id(END) is None:
        raise UserError(f"the tokenizer has no {END}; expected GPT-2's byte-level BPE.")
    masks = (MASK, *SPAN_MASKS)
    tokenizer.add_special_tokens([END])
    tokenizer.add_special_tokens(
        [AddedToken(token, lstrip=token in masks, special=True) for token in GLM_SPECIAL]
    )
    tokenizer.post_processor = TemplateProcessing(
        single=f"{CLS} $A {END}",
        pair=f"{CLS} $A {SEP} $B {END}",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (CLS, SEP, END)],
    )


def write(tokenizer: "Tokenizer", folder: Path, roles: Mapping[str, Any] = ROLES) -> None:
    """Write the files from which transformers loads a tokenizer."""
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **roles}
    write_config(folder, settings, "tokenizer_config.json")


# CPM-2's tokenizer, which transformers lacks.

_LONGEST_WORD = 200  # in characters; the authors' limit
_MARKS = str.maketrans({" ": SPACE, "\n": NEWLINE})
_STAY_FULL = "，。！（）？、；："  # noqa: RUF001  Chinese punctuation keeps its width
_HALF = {wide: wide - 0xFEE0 for wide in range(0xFF01, 0xFF5F) if chr(wide) not in _STAY_FULL}
_HALF[0x3000] = ord(" ")


class Cpm2Tokenizer(PreTrainedTokenizer):  # type: ignore[misc]
    """CPM-2's Chinese tokenizer; it adds no tokens to a text.

    jieba cuts a text into words. Each word is split greedily into the longest entries of the
    vocabulary. A space is the token ▂, a newline the token ▃.

    Special tokens in a text are recognized, as elsewhere in transformers. The authors' code reads
    them as text, and so does `split_special_tokens=True`.

    Args:
        vocab_file: one token per line; the line number is the id.
        q2b: convert full-width letters, digits and most signs to half-width ones first, as CPM-2's
            fine-tuning code does; PPT's code does not.
        settings: the common options of transformers' tokenizers.

    >>> from pathlib import Path
    >>> from ptrun.papers.tokenizers import Cpm2Tokenizer
    >>> tokens = "<unk> <pad> <eod> <s> <sep> <mask> ▂ ▃".split()
    >>> _ = Path("vocab.txt").write_text(chr(10).join(tokens), encoding="utf-8")
    >>> Cpm2Tokenizer("vocab.txt").vocab_size
    8
    """

    vocab_files_names: ClassVar[dict[str, str]] = {"vocab_file": "vocab.txt"}
    model_input_names: ClassVar[list[str]] = ["input_ids", "attention_mask"]

    def __init__(self, vocab_file: str, q2b: bool = True, **settings: Any):
        self.ids = read_vocabulary(Path(vocab_file))
        self.entries = list(self.ids)
        self.q2b, self._longest = q2b, max(map(len, self.ids))
        super().__init__(q2b=q2b, **(SPECIAL | settings))

    @property
    def vocab_size(self) -> int:
        """Return the number of entries."""
        return len(self.entries)

    def get_vocab(self) -> dict[str, int]:
        """Return ids by token, with tokens that were added later."""
        return self.ids | dict(self.added_tokens_encoder)

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        """Return the text of tokens, with spaces and newlines."""
        return "".join(tokens).replace(SPACE, " ").replace(NEWLINE, "\n")

    def save_vocabulary(
        self, save_directory: str, filename_prefix: str | None = None
    ) -> tuple[str, ...]:
        """Write vocab.txt and return its path."""
        prefix = f"{filename_prefix}-" if filename_prefix else ""
        file = Path(save_directory) / f"{prefix}vocab.txt"
        file.write_text("\n".join(self.entries) + "\n", encoding="utf-8")
        return (str(file),)

    def _tokenize(self, text: str, **_: Any) -> list[str]:
        words = jieba().cut(text.translate(_HALF) if self.q2b else text)
        return [token for word in words for token in self.split_word(word.translate(_MARKS))]

    def split_word(self, word: str) -> list[str]:
        """Return the tokens of one word, the longest entry first; `<unk>` where none fits."""
        if len(word) > _LONGEST_WORD:
            return [SPECIAL["unk_token"]]
        tokens, start = [], 0
        while start < len(word):
            ends = range(min(len(word), start + self._longest), start, -1)
            end = next((end for end in ends if word[start:end] in self.ids), None)
            tokens.append(SPECIAL["unk_token"] if end is None else word[start:end])
            start = end or start + 1
        return tokens

    def _convert_token_to_id(self, token: str) -> int:
        return self.ids.get(token, self.ids[SPECIAL["unk_token"]])

    def _convert_id_to_token(self, index: int) -> str:
        return self.entries[index]
