"""A head that finds one span of a context, or none (SQuAD)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ptrun.backbone.base import BackboneOutput
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.readout.base import Batch, Features, Row
from ptrun.readout.head import Head, tokens
from ptrun.task.base import Task
from ptrun.types import Example, Prediction

_BEST = 20  # starts and ends that are paired, as the official script
_LONGEST = 30  # tokens of an answer
_STRIDE = 128  # tokens that neighbouring windows share


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
        return [self._features(example, self.room(room)) for example in examples]

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return cross-entropy summed over the starts and ends of all windows, `[]`."""
        windows = self._windows(output, batch)
        targets = batch.targets.view(-1, 2)
        losses = [
            functional.cross_entropy(own.T, target, reduction="sum")
            for own, target in zip(windows, targets, strict=True)
        ]
        return torch.stack(losses).sum()

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return the best span of each example's windows, "" where none is likelier."""
        windows = iter(self._windows(output, batch))
        return [
            Prediction(f.id, self._answer(f, [next(windows) for _ in f.rows]))
            for f in batch.features
        ]

    def _windows(self, output: BackboneOutput, batch: Batch) -> list[Tensor]:
        """Return start and end scores `[T, 2]` of each window."""
        return list(torch.split(self.scores(output, batch), [len(row.ids) for row in batch.rows]))

    def _answer(self, features: Features, windows: list[Tensor]) -> str:
        null, offsets = features.facts["null"], features.facts["offsets"]
        nulls = [float(w[at].sum()) for w, at in zip(windows, null, strict=True)]
        spans = [
            span
            for window, own in zip(windows, offsets, strict=True)
            for span in _spans(window.float().cpu(), own)
        ]
        best = max(spans, default=None)
        if best is None or (self.unanswerable and min(nulls) > best[0]):
            return ""
        text: str = features.facts["context"][-best[1] : best[2]]
        return text

    def _features(self, example: Example, room: int) -> Features:
        question, context = (example.fields[field] for field in self.task.fields)
        rows = _windows_of(self.backbone.tokenizer(), question.lstrip(), context, room)
        count = len(rows["input_ids"])
        own = [Row(*tokens(rows, i), list(range(len(rows["input_ids"][i])))) for i in range(count)]
        offsets = [_of_context(rows, i) for i in range(count)]
        last = self.backbone.family != "masked"
        null = [len(row.ids) - 1 if last else 0 for row in own]
        targets = [_target(o, n, example) for o, n in zip(offsets, null, strict=True)]
        facts = {"context": context, "offsets": offsets, "null": null}
        return Features(example.id, own, [index for pair in targets for index in pair], facts)


def _windows_of(tokenizer: Any, question: str, context: str, room: int) -> Any:
    """Tokenize a question with each window of its context; a question keeps half a row at most."""
    asked = tokenizer(question, add_special_tokens=False, return_offsets_mapping=True)
    if len(asked["input_ids"]) > room // 2:
        question = question[: asked["offset_mapping"][room // 2][0]]
    left = room - tokenizer.num_special_tokens_to_add(pair=True) - room // 2
    return tokenizer(
        question,
        context,
        truncation="only_second",
        max_length=room,
        stride=min(_STRIDE, 3 * left // 4),
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )


def _of_context(rows: Any, i: int) -> list[list[int] | None]:
    """Return each token's place in the context, None for all others."""
    pairs = zip(rows.sequence_ids(i), rows["offset_mapping"][i], strict=True)
    return [list(place) if text == 1 else None for text, place in pairs]


def _target(offsets: list[list[int] | None], null: int, example: Example) -> tuple[int, int]:
    """Return the first answer's first and last token in a window, or its null position twice."""
    if not example.target:
        return null, null
    start, end = example.target[0].start, example.target[0].start + len(example.target[0].text)
    inside = [i for i, o in enumerate(offsets) if o and o[0] < end and o[1] > start]
    known = [o for o in offsets if o]
    if not inside or known[0][0] > start or known[-1][1] < end:
        return null, null
    return inside[0], inside[-1]


def _spans(scores: Tensor, offsets: list[list[int] | None]) -> list[tuple[float, int, int]]:
    """Return (score, -first character, last character) of the likeliest pairs of start and end."""
    count = min(_BEST, len(offsets))
    starts, ends = (scores[:, i].topk(count).indices.tolist() for i in (0, 1))
    pairs = [(s, e) for s in starts for e in ends if s <= e < s + _LONGEST]
    found = []
    for start, end in pairs:
        first, last = offsets[start], offsets[end]
        if first and last:
            found.append((float(scores[start, 0] + scores[end, 1]), -first[0], last[1]))
    return found
