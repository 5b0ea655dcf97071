"""A head that finds one span of a context, or none (SQuAD)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from ptrun.backbone.base import BackboneOutput
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.readout.base import Batch, Features, Row
from ptrun.readout.context import after_space, paired
from ptrun.readout.head import Head, columns, tokens
from ptrun.task.base import Task
from ptrun.types import Example, Prediction

_BEST = 20  # starts and ends that are paired, as the official script
_LONGEST = 30  # tokens of an answer
_STRIDE = 128  # tokens that neighbouring windows share

Span = tuple[float, int, int]
"""Score, minus the first character, the character after the last: of equals the earliest wins."""


@dataclass(frozen=True)
class Window:
    """Where the tokens of a window stand in the context.

    Args:
        null: the position that stands for "no answer here".
        begin: the position of the first token of the context.
        starts, ends: characters of the context at which each of its tokens starts and ends.
    """

    null: int
    begin: int
    starts: list[int]
    ends: list[int]

    def target(self, example: Example) -> list[int]:
        """Return the first answer's first and last position, or twice the null position."""
        if not example.target:
            return [self.null, self.null]
        start, end = example.target[0].start, example.target[0].start + len(example.target[0].text)
        places = enumerate(zip(self.starts, self.ends, strict=True), start=self.begin)
        inside = [i for i, (first, last) in places if first < end and last > start]
        if not inside or self.starts[0] > start or self.ends[-1] < end:
            return [self.null, self.null]
        return [inside[0], inside[-1]]

    def spans(self, scores: Tensor) -> list[Span]:
        """Return the likeliest answers, from scores `[T, 2]` of starts and ends."""
        firsts, lasts = (_likeliest(scores[:, side]) for side in (0, 1))
        return [
            (first + last, -self.starts[a - self.begin], self.ends[b - self.begin])
            for a, first in firsts
            for b, last in lasts
            if self._holds(a, b)
        ]

    def _holds(self, first: int, last: int) -> bool:
        """Return whether an answer may stand from one position to another."""
        if not self.begin <= first <= last < min(first + _LONGEST, self.begin + len(self.starts)):
            return False
        written = self.starts[first - self.begin] < self.ends[last - self.begin]
        return written and (first, last) != (self.null, self.null)


class SpanHead(Head):
    """Linear(H, 2): the start and the end of the answer, each a softmax over a window's tokens.

    Contexts that are too long are read in windows; a window without the answer should point at its
    null position, the first token of an encoder and the last of other families. As in the official
    P-tuning v2 code there is no dropout before the map, and the loss is the mean of both; unlike
    it, padding has no part in the softmax, and a batch counts questions, not windows.
    """

    def __init__(self, backbone: PretrainedBackbone, task: Task):
        super().__init__(backbone, task, 2)
        self.dropout = 0.0
        self.unanswerable = bool(getattr(task, "unanswerable", False))

    def encode(self, examples: Sequence[Example], room: int) -> list[Features]:
        """Tokenize question and context in overlapping windows."""
        asked, contexts = columns(examples, self.task.fields)
        rows = paired(self.backbone.tokenizer(), asked, contexts, self.room(room), stride=_STRIDE)
        windows: list[list[int]] = [[] for _ in examples]
        for i, example in enumerate(rows["overflow_to_sample_mapping"]):
            windows[example].append(i)
        return [self._features(e, rows, own) for e, own in zip(examples, windows, strict=True)]

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return cross-entropy summed over the starts and ends of all windows, `[]`."""
        scores = self._split(self.scores(output, batch), batch)
        padded = pad_sequence(scores, batch_first=True, padding_value=-torch.inf)
        return functional.cross_entropy(padded, batch.targets.view(-1, 2), reduction="sum")

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return the best span of each example's windows, "" where none is likelier."""
        scores = iter(self._split(self.scores(output, batch).cpu(), batch))
        return [
            Prediction(f.id, self._answer(f, [next(scores) for _ in f.rows]))
            for f in batch.features
        ]

    def _split(self, scores: Tensor, batch: Batch) -> list[Tensor]:
        """Return start and end scores `[T, 2]` of each window."""
        return list(torch.split(scores, [len(row.reads) for row in batch.rows]))

    def _answer(self, features: Features, scores: list[Tensor]) -> str:
        """Return the best answer; of a task that has such questions "" if null is likelier.

        The null score is the least over windows, as in the official script.
        """
        windows = [Window(*own) for own in features.facts["windows"]]
        pairs = list(zip(windows, scores, strict=True))
        null = min(sum(own[window.null].tolist()) for window, own in pairs)
        best = max((s for window, own in pairs for s in window.spans(own)), default=None)
        if best is None or (self.unanswerable and null > best[0]):
            return ""
        text: str = features.facts["context"][-best[1] : best[2]]
        return text

    def _features(self, example: Example, rows: Any, own: Sequence[int]) -> Features:
        context = example.fields[self.task.fields[1]]
        windows = [_window(rows, i, context, self.backbone.family) for i in own]
        targets = [place for window in windows for place in window.target(example)]
        facts = {"context": context, "windows": [list(vars(window).values()) for window in windows]}
        return Features(example.id, [_row(rows, i) for i in own], targets, facts)


def _window(rows: Any, i: int, context: str, family: str) -> Window:
    """Return a window; a token's own space, which some tokenizers count to it, is left out."""
    texts = rows.sequence_ids(i)
    begin = texts.index(1) if 1 in texts else 0
    places = rows["offset_mapping"][i][begin : begin + texts.count(1)]
    starts = [after_space(context, start, end) for start, end in places]
    null = 0 if family in ("masked", "infilling") else max(0, len(texts) - 1)
    return Window(null, begin, starts, [end for _, end in places])


def _row(rows: Any, i: int) -> Row:
    ids, types = tokens(rows, i)
    return Row(ids, types, list(range(len(ids))))


def _likeliest(scores: Tensor) -> list[tuple[int, float]]:
    """Return the positions of the highest scores `[T]`, with their scores."""
    best = scores.topk(min(_BEST, len(scores)))
    return list(zip(best.indices.tolist(), best.values.tolist(), strict=True))
