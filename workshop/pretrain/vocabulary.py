"""Tokenizers from a corpus: WordPiece (BERT), byte-level BPE (GPT-2, GLM), Unigram (T5).

All encode common words as one token and any ASCII text without unknown tokens.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerFast

from ptrun.papers import tokenizers as own_tokenizers
from ptrun.pattern.spelling import answer_end
from workshop.pocket.vocabulary import WORD, vocabulary

_LONGEST_WORD = 10_000
_SENTINELS = 100
_END = "<|endoftext|>"


@dataclass(frozen=True)
class Marks:
    """The special token ids of a row.

    `special` ids are never masked; `stop` ends a row or an answer.
    """

    pad: int
    begin: list[int]
    end: list[int]
    special: list[int]
    stop: int
    mask: int | None = None
    piece: tuple[int, int] | None = None
    """First and last token of a span after the text (blank infilling)."""
    sentinels: tuple[int, ...] = ()
    pairs: bool = False


def wordpiece(sentences: Iterable[str], size: int) -> PreTrainedTokenizerFast:
    """Return a cased BERT tokenizer."""
    entries = vocabulary(sentences, size)
    pieces = models.WordPiece(
        {word: i for i, word in enumerate(entries)},
        unk_token="[UNK]",
        max_input_chars_per_word=_LONGEST_WORD,
    )
    tokenizer = Tokenizer(pieces)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.decoder = decoders.WordPiece()
    names = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    return _wrapped(tokenizer, {f"{role}_token": token for role, token in names.items()})


def byte_pairs(sentences: Iterable[str], size: int) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer that adds a space before a text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[_END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(sentences, trainer)
    return _wrapped(tokenizer, {"bos_token": _END, "eos_token": _END, "pad_token": _END})


def blanks(sentences: Iterable[str], size: int) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer with GLM's special tokens and frame."""
    tokenizer = byte_pairs(sentences, size - len(own_tokenizers.GLM_SPECIAL)).backend_tokenizer
    own_tokenizers.add_special(tokenizer)
    return _wrapped(tokenizer, own_tokenizers.ROLES)


def unigram(sentences: Iterable[str], size: int) -> PreTrainedTokenizerFast:
    """Return a SentencePiece-like tokenizer: words after a space, characters, 100 sentinels.

    It appends no `</s>`: PPT's inputs have none.
    """
    counts = Counter(word for sentence in sentences for word in WORD.findall(sentence))
    specials = ["<pad>", "</s>", "<unk>"]
    characters = [chr(c) for c in range(33, 127)]
    words = [w for w, _ in sorted(counts.items(), key=lambda i: (-i[1], i[0])) if w.isalnum()]
    room = size - len(specials) - 1 - len(characters) - _SENTINELS
    sentinels = [f"<extra_id_{i}>" for i in reversed(range(_SENTINELS))]
    worth = {f"▁{word}": math.log(counts[word] / counts.total()) for word in words[:room]}
    least = min(worth.values()) - 2.0  # a character costs more than the rarest word
    pieces = [(piece, 0.0) for piece in specials]
    pieces += [*worth.items(), ("▁", least), *((c, least) for c in characters)]
    pieces += [(sentinel, 0.0) for sentinel in sentinels]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=2, byte_fallback=False))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    names = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    return _wrapped(tokenizer, {**names, "additional_special_tokens": sentinels[::-1]})


def marks(tokenizer: PreTrainedTokenizerFast) -> Marks:
    """Return the special tokens of a row, according to the roles that a tokenizer has."""
    special = sorted(tokenizer.all_special_ids)
    pad, stop, mask = tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.mask_token_id
    if (last := answer_end(tokenizer)) is not None:
        piece = tokenizer.convert_tokens_to_ids(own_tokenizers.START_OF_PIECE), last
        begin = [tokenizer.cls_token_id]
        return Marks(pad, begin, [stop], special, stop, mask=mask, piece=piece)
    if mask is not None:
        begin, end = [tokenizer.cls_token_id], [tokenizer.sep_token_id]
        return Marks(pad, begin, end, special, end[0], mask=mask, pairs=True)
    if tokenizer.bos_token_id is not None:
        return Marks(pad, [tokenizer.bos_token_id], [stop], special, stop)
    sentinels = tokenizer.convert_tokens_to_ids([f"<extra_id_{i}>" for i in range(_SENTINELS)])
    return Marks(pad, [], [], special, stop, sentinels=tuple(sentinels))


def _wrapped(tokenizer: Tokenizer, names: Mapping[str, Any]) -> PreTrainedTokenizerFast:
    """Return a transformers tokenizer of the generic class, which loads back unchanged."""
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
