"""Tokenizers made from a corpus: WordPiece (BERT), byte-level BPE (GPT-2, GLM), Unigram (T5).

All write common words as one token and any ASCII text without an unknown one.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
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

from ptrun.backbone import glm_tokenizer as glm
from ptrun.pocket.vocabulary import WORD, vocabulary
from ptrun.prompt.spelling import answer_end

_LONGEST_WORD = 10_000
_SENTINELS = 100
_END = "<|endoftext|>"


@dataclass(frozen=True)
class Marks:
    """What a row is written with, as token ids.

    `special` ids are never masked; `stop` ends a row, or an answer.
    """

    pad: int
    begin: list[int]
    end: list[int]
    special: list[int]
    stop: int
    mask: int | None = None
    piece: tuple[int, int] | None = None
    """What a span behind the text begins and ends with."""
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
    made = Tokenizer(pieces)
    made.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made.decoder = decoders.WordPiece()
    names = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    return _wrapped(made, {f"{role}_token": token for role, token in names.items()})


def byte_pairs(sentences: Iterable[str], size: int) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer; a text starts as if a space stood before it."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[_END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(sentences, trainer)
    return _wrapped(made, {"bos_token": _END, "eos_token": _END, "pad_token": _END})


def blanks(sentences: Iterable[str], size: int) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer with GLM's special tokens and frame."""
    made = byte_pairs(sentences, size - len(glm.SPECIAL)).backend_tokenizer
    glm.add_special(made)
    return _wrapped(made, glm.ROLES)


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
    made = Tokenizer(models.Unigram(pieces, unk_id=2, byte_fallback=False))
    made.normalizer = normalizers.NFKC()
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    made.decoder = decoders.Metaspace(prepend_scheme="always")
    names = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    return _wrapped(made, {**names, "additional_special_tokens": sentinels[::-1]})


def marks(tokenizer: PreTrainedTokenizerFast) -> Marks:
    """Return how a tokenizer's rows begin and end, by the marks it has."""
    special = sorted(tokenizer.all_special_ids)
    pad = tokenizer.pad_token_id
    if (last := answer_end(tokenizer)) is not None:
        return _of_blanks(tokenizer, special, last)
    if tokenizer.mask_token_id is not None:
        begin, end = [tokenizer.cls_token_id], [tokenizer.sep_token_id]
        mask = tokenizer.mask_token_id
        return Marks(pad, begin, end, special, end[0], mask=mask, pairs=True)
    stop = tokenizer.eos_token_id
    if tokenizer.bos_token_id is not None:
        return Marks(pad, [tokenizer.bos_token_id], [stop], special, stop)
    sentinels = tokenizer.convert_tokens_to_ids([f"<extra_id_{i}>" for i in range(_SENTINELS)])
    return Marks(pad, [], [], special, stop, sentinels=tuple(sentinels))


def _of_blanks(tokenizer: PreTrainedTokenizerFast, special: list[int], last: int) -> Marks:
    begin = tokenizer.convert_tokens_to_ids(glm.START_OF_PIECE)
    end, mask = tokenizer.eos_token_id, tokenizer.mask_token_id
    row = Marks(tokenizer.pad_token_id, [tokenizer.cls_token_id], [end], special, end, mask=mask)
    return replace(row, piece=(begin, last))


def _wrapped(made: Tokenizer, names: Mapping[str, Any]) -> PreTrainedTokenizerFast:
    """Return a tokenizer as transformers loads it back: as it is, no class rebuilds it."""
    return PreTrainedTokenizerFast(tokenizer_object=made, **names)
