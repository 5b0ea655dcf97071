"""What read-outs of several spans share: one row a question, and answers from tokens' odds."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from torch import Tensor

from ptrun.backbone.base import BackboneOutput
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.readout.base import Batch, Features, Row
from ptrun.readout.context import paired
from ptrun.readout.head import columns, tokens
from ptrun.readout.multispan_answers import answers
from ptrun.readout.multispan_passage import Passage, passage_of
from ptrun.task.base import Task
from ptrun.types import Example, Prediction

_TOGETHER = 256  # examples that are tokenized at once


class PassageReader(ABC):
    """Every token of a passage is read; how likely it belongs to an answer is the sub-class's say.

    `least` is the log-odds above which a token does, `others` further ones by name: what they lead
    to is told beside the answer.
    """

    reads_decoder = False
    backbone: PretrainedBackbone
    task: Task
    least: float = 0.0
    others: Mapping[str, float] = {}

    def encode(self, examples: Sequence[Example], room: int) -> list[Features]:
        """Tokenize question and passage; the passage is cut to what is left of the row."""
        longest = min(room, self.task.max_tokens or room)
        asked, texts = columns(examples, self.task.fields)
        rows = paired(self.backbone.tokenizer(), asked, texts, longest)
        made = []
        for i, (example, text) in enumerate(zip(examples, texts, strict=True)):
            passage, places = passage_of(rows, i, text)
            row, tags = Row(*tokens(rows, i), places), passage.tags(example.target)
            made.append(Features(example.id, [row], tags, vars(passage)))
        return made

    def teaching(self, examples: Sequence[Example], room: int) -> list[Example]:
        """Return the examples that are learned from: none of their answers was cut off."""
        parts = (examples[i : i + _TOGETHER] for i in range(0, len(examples), _TOGETHER))
        pairs = (pair for own in parts for pair in zip(own, self.encode(own, room), strict=True))
        return [example for example, f in pairs if Passage(**f.facts).holds(example.target)]

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return the answers to each question."""
        odds = [own.tolist() for own in batch.by_example(self.odds(output, batch))]
        return [self._told(f, own) for f, own in zip(batch.features, odds, strict=True)]

    @abstractmethod
    def odds(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return the log-odds `[K]` that a token belongs to an answer."""

    def _told(self, features: Features, odds: list[float]) -> Prediction:
        passage = Passage(**features.facts)
        also = {name: answers(passage, odds, least) for name, least in self.others.items()}
        return Prediction(features.id, answers(passage, odds, self.least), also)
