"""One word in a gap, through the language-model head: label words, letters, and facts."""

from collections.abc import Sequence, Set
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from ptrun.backbone.base import BackboneOutput, moved, on_device
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.pattern.pattern import PVP
from ptrun.pattern.rendering import Piece
from ptrun.pattern.spelling import mask_ids
from ptrun.pattern.verbalizer import LabelTokens, Verbalizer
from ptrun.readout.base import Batch, Features, TokenRow, word_logits
from ptrun.readout.cloze import Cloze
from ptrun.readout.head import Shares, likeliest
from ptrun.task.dataset import Task
from ptrun.types import Example, Prediction

_MOST_OPTIONS = 16


class LabelWords(Cloze):
    """The label whose words are likeliest at the mask.

    >>> from ptrun.testing import read
    >>> method, batch, output = read("method=prompt_tuning", "readout=verbalizer")
    >>> method.readout.tokens.scores(output.logits[:, None]).shape  # [B, C] of [B, 1, V]
    torch.Size([2, 2])
    """

    keys: ClassVar[Set[str]] = {"literal_sep", "sentinel", "among", "closed", "class_weights"}

    def __init__(self, backbone: PretrainedBackbone, task: Task, pvp: PVP, options: Any):
        super().__init__(backbone, task, pvp, options)
        self.whole_vocabulary = options.among == "vocabulary"
        self._before = int(self.whole_vocabulary and self.marked)  # reads: is a sentinel a target?

    @property
    def labels(self) -> Sequence[str]:
        """The labels, in the order of `weights`."""
        return self.tokens.labels

    def words(self) -> list[int]:
        """Return the token ids of the label words."""
        return [i for words in self.tokens.ids for word in words for i in word]

    def first_words(self) -> Verbalizer | None:
        """Return the label words, where the first piece alone is read."""
        verbalizer = self.pvp.verbalizer() if self.pvp.words else None
        return verbalizer if verbalizer and verbalizer.rule == "first" else None

    @cached_property
    def tokens(self) -> LabelTokens:
        """The label words as token ids; a refusal names the task's other patterns."""
        verbalizer = self.pvp.verbalizer(_MOST_OPTIONS)
        assert verbalizer is not None
        try:
            return verbalizer.bind(self.backbone.tokenizer())
        except UserError as error:
            others = ", ".join(name for name in self.task.pvps if name != self.pvp.name)
            also = f"\nOr another readout.pattern: {others}." if others else ""
            raise UserError(f"pattern {self.pvp.name}: {error}{also}") from error

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return cross-entropy summed over targets, each by the weight of its label, `[]`."""
        scores = self._scores(output, batch)
        weight = None  # of each column of scores `[K, C]` or `[K, V]`
        if self.weights is not None and self.whole_vocabulary:
            weight = torch.ones(scores.shape[1])
            for token, label in self._owners.items():
                weight[token] = self.weights[label]
            weight = weight.to(scores.device)
        elif self.weights is not None:
            weight = on_device(self.weights, scores.device, torch.float)
        return functional.cross_entropy(scores, batch.targets, weight, reduction="sum")

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return the likeliest label of each example."""
        scores = self._scores(output, batch)[self._before :: self._before + 1 + self.options.closed]
        best, top, shares = likeliest(scores)
        if self.whole_vocabulary:  # of the likeliest word of each label
            firsts = [[word[0] for word in words] for words in self.tokens.ids]
            every = on_device([token for tokens in firsts for token in tokens], shares.device)
            by_label = torch.split(shares.index_select(1, every).cpu(), [*map(len, firsts)], dim=1)
            shares = torch.stack([words.amax(dim=-1) for words in by_label], dim=-1)
        parts = zip(batch.features, best, top, shares.cpu(), strict=True)
        predictions: list[Prediction | Features] = []
        for features, place, share, by_label in parts:
            options = features.facts["options"]
            named = Shares(range(options) if options else self.tokens.labels, by_label)
            label = self._label(features, place)
            predictions.append(Prediction(features.id, label, {}, share, named))
        return predictions

    def _features(self, example: Example, room: int) -> Features:
        row = self.row(self.pieces(example), room, self.tokens.masks)
        if self.decodes:
            row = replace(row, reads=row.reads[len(row.reads) - 1 - self._before :])
        label = self.tokens.labels.index(str(example.target))
        targets = [label]
        if self.whole_vocabulary:
            sentinel = row.decoder[-1:] if row.decoder and self._before else []
            targets = [*sentinel, self.tokens.ids[label][0][0]]
        if self.options.closed:  # the answer is in the decoder's input, unseen before, and its end
            assert row.decoder is not None
            (_, end), _ = mask_ids(self.backbone.tokenizer(), 2)
            decoder, reads = [*row.decoder, targets[-1]], [*row.reads, row.reads[-1] + 1]
            row, targets = replace(row, decoder=decoder, reads=reads), [*targets, end]
        options = len(example.fields.get("options", ())) if self.pvp.words is None else 0
        return Features(example.id, [row], targets, {"options": options})

    def _scores(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return `[N, C]` scores of labels or `[N, V]` of words, one row for each target."""
        if self.whole_vocabulary:
            return word_logits(output)
        assert output.logits is not None
        reads = len(batch.rows[0].reads)
        scores = self.tokens.scores(output.logits.view(len(batch), reads, -1))
        counts = [f.facts["options"] or scores.shape[1] for f in batch.features]
        if min(counts) == scores.shape[1]:
            return scores
        places = torch.arange(scores.shape[1], device=scores.device)
        absent = places >= on_device(counts, scores.device)[:, None]
        return scores.masked_fill(absent, -torch.inf)

    def _label(self, features: Features, best: int) -> int | str:
        """Return the label of an index or token, or a wrong one for a token of no label.

        That of an example with options is -1.
        """
        options, labels = features.facts["options"], self.tokens.labels
        if self.whole_vocabulary and best not in self._owners:
            word = self.encoder.spelling.tokens([best])[0]
            return -1 if options else f"other word: {word}" if word in labels else word
        label = self._owners[best] if self.whole_vocabulary else best
        if options:
            return label if label < options else -1
        return labels[label]

    @cached_property
    def _owners(self) -> dict[int, int]:
        """The label of each label word's token."""
        return {word[0]: i for i, words in enumerate(self.tokens.ids) for word in words}


_STARTS = ("Ġ", "▁")  # how byte-level and sentencepiece vocabularies write a word's start


class FactWords(Cloze):
    """The likeliest allowed word; the loss is cross-entropy over the whole vocabulary.

    The task's `vocabulary` lists allowed words; those of one token count (P-tuning, LAMA). Without
    a list every token is allowed, and P@1 is lower than the papers'.

    >>> from ptrun.testing import read
    >>> method, batch, output = read("method=manual_prompt", "task=pocket_facts")
    >>> output.logits.shape, len(method.decode(output, batch))  # [B, V]
    (torch.Size([2, 2648]), 2)
    """

    keys: ClassVar[Set[str]] = {"literal_sep", "sentinel", "shifted_label", "released_query"}

    def answerable(self, examples: Sequence[Example]) -> Sequence[Example]:
        """Return the examples whose object is one known and allowed token."""
        tokens = [self._token(str(example.target)) for example in examples]
        allowed = {*tokens} - {None} if self.allowed is None else {*self.allowed.tolist()}
        return [e for e, token in zip(examples, tokens, strict=True) if token in allowed]

    @cached_property
    def allowed(self) -> Tensor | None:
        """The token ids of allowed words, in order; None allows all."""
        words = getattr(self.task, "vocabulary", None)
        if words is None:
            return None
        tokens = {token for word in words if (token := self._token(word)) is not None}
        if not tokens:
            raise UserError(
                f"task.vocabulary: none of its {len(words)} words is one token of backbone="
                f"{self.backbone.name};\nname another file, or type task.vocabulary=objects."
            )
        return torch.tensor(sorted(tokens))

    def row(self, pieces: Sequence[Piece], room: int, masks: int = 1, answer: int = 0) -> TokenRow:
        """Return the row of an example, laid out as the released code does if requested."""
        if not self.options.released_query:
            return super().row(pieces, room, masks)
        if self.backbone.architecture.fills_masks:
            return super().row(led(pieces), room, masks)
        *text, hole = led(pieces)
        if text and hole.spaced:  # the space before the object is text
            text.append(replace(hole, kind="literal", text=" ", spaced=False))
        tokenizer = self.backbone.tokenizer()
        start, end = tokenizer.bos_token_id, tokenizer.eos_token_id
        marked = not (self.encoder.framed or start is None or end is None or start == end)
        ids = self.encoded([*text, hole], room, answer=2 * marked).ids
        ids = [start, *ids, end] if marked else ids
        return TokenRow(ids, reads=[len(ids) - 1])

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return cross-entropy summed over targets, `[]`."""
        learned = self._reads(output, batch, 0)
        return functional.cross_entropy(learned, batch.targets, reduction="sum")

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return the likeliest allowed word of each example; `##` is before a part of a word."""
        scores = self._reads(output, batch, -1)
        best = scores.argmax(dim=-1)
        if self.allowed is not None:
            allowed = moved(self.allowed, scores.device)
            best = allowed[scores[:, allowed].argmax(dim=-1)]
        predictions: list[Prediction | Features] = []
        for features, token in zip(batch.features, best.tolist(), strict=True):
            word = str(features.facts["word"])
            if token != features.targets[0]:
                spelling = self.encoder.spelling
                written = spelling.tokens([token])[0]
                inside = spelling.style != "plain" and not written.startswith(_STARTS)
                word = f"##{written}" if inside else written.lstrip("".join(_STARTS))
            predictions.append(Prediction(features.id, word))
        return predictions

    def _reads(self, output: BackboneOutput, batch: Batch, which: int) -> Tensor:
        """Return logits `[B, V]` of a row's first read (training) or last (evaluation)."""
        logits = word_logits(output)
        return logits.view(len(batch), -1, logits.shape[-1])[:, which]

    def _features(self, example: Example, room: int) -> Features:
        row = self.row(self.pieces(example), room)
        at = row.reads[-1]
        shifted = self.options.shifted_label and self.backbone.architecture.left_to_right
        row = replace(row, reads=[at - 1, at] if shifted else [at])
        token = self._token(str(example.target))
        target = -1 if token is None else token  # never trained on: see `answerable`
        return Features(example.id, [row], [target], {"word": example.target})

    def _token(self, word: str) -> int | None:
        """Return the token of a word, or None if it has several or a special one."""
        ids = self.encoder.spelling.answer(word)
        return ids[0] if len(ids) == 1 and ids[0] not in self._special else None

    @cached_property
    def _special(self) -> set[int]:
        return set(self.backbone.tokenizer().all_special_ids)


# The query about a fact as P-tuning's released code writes it with a manual template.
#
# THUDM/P-tuning 9857868, LAMA/p_tuning/modeling.py, `get_query` with `use_original_template`: the
# template begins with a space, which RoBERTa's and GPT-2's tokens show. A masked backbone reads it
# whole. For a left-to-right one it is cut at `[Y]`, tokenized with special tokens, and read at its
# last token. Differences there to the text before the object:
# - The space before the object stays, as its own token (GPT-2: 220). The object follows with
#   another space before it, in training and evaluation.
# - Megatron-11B has RoBERTa's tokenizer there, which adds `<s>` and `</s>`: the answer is read
#   after `</s>`. Here, any tokenizer without special tokens around a text, but with different ones
#   for its beginning and end, gets them.


def led(pieces: Sequence[Piece]) -> list[Piece]:
    """Return the pieces with a space before the first."""
    return [replace(pieces[0], spaced=True), *pieces[1:]]
