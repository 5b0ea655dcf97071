"""CPM-2's tokenizer with the interface of transformers.

    Cpm2Tokenizer.from_pretrained(FOLDER)        FOLDER: vocab.txt, tokenizer_config.json

Use it where `ptrun.tokenizer.cpm2_text.is_cpm2(FOLDER)`; transformers does not know the class.
"""

from pathlib import Path
from typing import Any, ClassVar

from transformers import PreTrainedTokenizer

from ptrun.tokenizer.cpm2_text import SPECIAL, Cpm2Text, read_vocabulary


class Cpm2Tokenizer(PreTrainedTokenizer):  # type: ignore[misc]
    """CPM-2's tokenizer, Chinese or Chinese-English; it adds no tokens to a text.

    Special tokens in a text are recognized, as elsewhere in transformers. The authors' code reads
    them as text, and so does `split_special_tokens=True`.

    Args:
        vocab_file: one token per line; the line number is the id.
        q2b: convert full-width letters and digits to half-width ones first (see `Cpm2Text`).
        settings: the common options of transformers' tokenizers.

    Raises:
        UserError: the vocabulary cannot be read; on encoding, jieba is not installed.
    """

    vocab_files_names: ClassVar[dict[str, str]] = {"vocab_file": "vocab.txt"}
    model_input_names: ClassVar[list[str]] = ["input_ids", "attention_mask"]

    def __init__(self, vocab_file: str, q2b: bool = True, **settings: Any):
        self.ids = read_vocabulary(Path(vocab_file))
        self.entries = list(self.ids)
        self.rules = Cpm2Text(self.ids, q2b=q2b)
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
        return self.rules.text(tokens)

    def save_vocabulary(
        self, save_directory: str, filename_prefix: str | None = None
    ) -> tuple[str, ...]:
        """Write vocab.txt and return its path."""
        prefix = f"{filename_prefix}-" if filename_prefix else ""
        file = Path(save_directory) / f"{prefix}vocab.txt"
        file.write_text("\n".join(self.entries) + "\n", encoding="utf-8")
        return (str(file),)

    def _tokenize(self, text: str, **_: Any) -> list[str]:
        return self.rules.tokens(text)

    def _convert_token_to_id(self, token: str) -> int:
        return self.ids.get(token, self.ids[SPECIAL["unk_token"]])

    def _convert_id_to_token(self, index: int) -> str:
        return self.entries[index]
