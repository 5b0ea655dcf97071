"""A head that finds one span of a context, or none (SQuAD)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from ptrun.backbone.base import BackboneOutput
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.prompt.context import after_space, paired
from ptrun.readout.base import Batch, Features, Row
from ptrun.readout.head import Head, columns, row_limit, tokens
from ptrun.task.base import Task
from ptrun.types import Example, Prediction

_BEST = 20  # starts and ends that are paired, as in the official script
_LONGEST = 30  # tokens of an answer
_STRIDE = 128  # tokens that neighbouring windows share

Span = tuple[float, int, int]
"""Score, minus the first character, the character after the last: the earliest wins a tie."""


@dataclass(frozen=True)
class Window:
    """The positions of a window's tokens in the context.

    Args:
        null: the position that means "no answer here".
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
        tops = [scores[:, side].topk(min(_BEST, len(scores))) for side in (0, 1)]
        starts, ends = (zip(t.indices.tolist(), t.values.tolist(), strict=True) for t in tops)
        return [
            (first + last, -self.starts[a - self.begin], self.ends[b - self.begin])
            for (a, first), (b, last) in product(starts, ends)
            if self._holds(a, b)
        ]

    def _holds(self, first: int, last: int) -> bool:
        """Return whether an answer may span these positions."""
        if not self.begin <= first <= last < min(first + _LONGEST, self.begin + len(self.starts)):
            return False
        written = self.starts[first - self.begin] < self.ends[last - self.begin]
        return written and (first, last) != (self.null, self.null)


class SpanHead(Head):
    """Linear(H, 2): the start and the end of the answer, each a softmax over a window's tokens.

    Long contexts are read in windows. The target of a window without the answer is its null
    position: the first token of an encoder, the last of other families. As in the official P-tuning
    v2 code there is no dropout before the map, and the loss is the mean of both. Unlike there,
    padding is not in the softmax, and a batch counts questions, not windows.
    """

    everywhere = windows = True

    def __init__(self, backbone: PretrainedBackbone, task: Task):
        super().__init__(backbone, task, 2)
        self.dropout = 0.0
        self.unanswerable = bool(getattr(task, "unanswerable", False))

    def encode(self, examples: Sequence[Example], room: int) -> list[Features]:
        """Tokenize question and context in overlapping windows."""
        questions, contexts = columns(examples, self.task.fields)
        limit = row_limit(self.task, room)
        rows = paired(self.backbone.tokenizer(), questions, contexts, limit, stride=_STRIDE)
        windows: list[list[int]] = [[] for _ in examples]
        for i, example in enumerate(rows["overflow_to_sample_mapping"]):
            windows[example].append(i)
        return [self._features(e, rows, own) for e, own in zip(examples, windows, strict=True)]

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return cross-entropy summed over the starts and ends of all windows, `[]`."""
        scores = batch.by_row(self.scores(output, batch))
        padded = pad_sequence(scores, batch_first=True, padding_value=-torch.inf)
        return functional.cross_entropy(padded, batch.targets.view(-1, 2), reduction="sum")

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return the best span of each example's windows, or "" for no answer."""
        scores = iter(batch.by_row(self.scores(output, batch).cpu()))
        parts = [(f, [next(scores) for _ in f.rows]) for f in batch.features]
        return [Prediction(f.id, self._answer(f, own)) for f, own in parts]

    def _answer(self, features: Features, scores: list[Tensor]) -> str:
        """Return the best answer, or "" if the task is `unanswerable` and null scores higher.

        The null score is the least over windows, as in the official script.
        """
        windows = (Window(*own) for own in features.facts["windows"])
        pairs = list(zip(windows, scores, strict=True))
        null = min(sum(own[window.null].tolist()) for window, own in pairs)
        best = max((s for window, own in pairs for s in window.spans(own)), default=None)
        if best is None or (self.unanswerable and null > best[0]):
            return ""
        text: str = features.facts["context"][-best[1] : best[2]]
        return text

    def _features(self, example: Example, rows: Any, own: Sequence[int]) -> Features:
        context, architecture = example.fields[self.task.fields[1]], self.backbone.architecture
        first = architecture.encoder or architecture.has_blank
        windows = [_window(rows, i, context, first=first) for i in own]
        targets = [place for window in windows for place in window.target(example)]
        facts = {"context": context, "windows": [list(vars(window).values()) for window in windows]}
        parts = [tokens(rows, i) for i in own]
        encoded = [Row(ids, types, list(range(len(ids)))) for ids, types in parts]
        return Features(example.id, encoded, targets, facts)


def _window(rows: Any, i: int, context: str, *, first: bool) -> Window:
    """Return a window; tokens start after the space that some tokenizers include.

    `first` says whether no answer is at the first token; otherwise it is at the last.
    """
    texts = rows.sequence_ids(i)
    begin = texts.index(1) if 1 in texts else 0
    places = rows["offset_mapping"][i][begin : begin + texts.count(1)]
    starts = [after_space(context, start, end) for start, end in places]
    null = 0 if first else max(0, len(texts) - 1)
    return Window(null, begin, starts, [end for _, end in places])
