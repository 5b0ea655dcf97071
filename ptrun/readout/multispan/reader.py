"""The base of read-outs of several spans: a row for each question, answers from odds."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence

from torch import Tensor

from ptrun.backbone.base import BackboneOutput
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.prompt.context import paired
from ptrun.readout.base import Batch, Features, Readout, Row
from ptrun.readout.head import columns, row_limit, tokens
from ptrun.readout.multispan.answers import answers
from ptrun.readout.multispan.passage import Passage, passage_of
from ptrun.task.base import Task
from ptrun.types import Example, Prediction

_TOGETHER = 256  # examples that are tokenized at once


class PassageReader(Readout):
    """Reads every token of a passage; a sub-class gives the odds that it belongs to an answer.

    A token belongs to an answer if its log-odds are above `least`. `others` are further thresholds
    by name; their answers are reported beside the prediction.
    """

    reads_decoder = False
    everywhere = True
    backbone: PretrainedBackbone
    task: Task
    least: float = 0.0
    others: Mapping[str, float] = {}

    teaches = True

    def encode(self, examples: Sequence[Example], room: int) -> list[Features]:
        """Tokenize question and passage; the passage is cut to the rest of the row."""
        questions, texts = columns(examples, self.task.fields)
        rows = paired(self.backbone.tokenizer(), questions, texts, row_limit(self.task, room))
        encoded = []
        for i, (example, text) in enumerate(zip(examples, texts, strict=True)):
            passage, places = passage_of(rows, i, text)
            row, tags = Row(*tokens(rows, i), places), passage.tags(example.target)
            encoded.append(Features(example.id, [row], tags, vars(passage)))
        return encoded

    def teaching(self, examples: Sequence[Example], room: int) -> list[Example]:
        """Return the examples to train on: those whose answers are all in the cut passage."""
        parts = (examples[i : i + _TOGETHER] for i in range(0, len(examples), _TOGETHER))
        pairs = (pair for own in parts for pair in zip(own, self.encode(own, room), strict=True))
        return [example for example, f in pairs if Passage(**f.facts).holds(example.target)]

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return the answers to each question."""
        pairs = batch.pairs(self.odds(output, batch).cpu())
        return [self._predicted(f, odds.tolist()) for f, odds in pairs]

    @abstractmethod
    def odds(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return the log-odds `[K]` that a token belongs to an answer."""

    def _predicted(self, features: Features, odds: list[float]) -> Prediction:
        passage = Passage(**features.facts)
        also = {name: answers(passage, odds, least) for name, least in self.others.items()}
        return Prediction(features.id, answers(passage, odds, self.least), also)
