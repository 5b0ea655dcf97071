"""Extractive question answering: one span of a context, or none."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Unpack

from ptrun.errors import UserError
from ptrun.metrics.squad import squad_scores, squad_v2_scores
from ptrun.task.dataset import Common, Dataset
from ptrun.task.shown import shown
from ptrun.task.source import Row
from ptrun.types import Example, Prediction


@dataclass(frozen=True)
class Answer:
    """A span of the context: its text, and the character it starts at."""

    text: str
    start: int


class InContext(Dataset):
    """Questions about contexts: `fields` are the two, `[question, context]`."""

    @property
    def columns(self) -> list[str]:
        """The question and its context."""
        return list(self.fields)

    def inputs(self, name: str, row: Row) -> Example:
        """Return the question of a row."""
        return Example(name, {field: row.text(field) for field in self.fields}, [])


class Extraction(InContext):
    """Questions about contexts; the target is the list of right answers, any of which counts.

    A prediction is a text, empty for "no answer".

    Args beyond those of `Common`:
        question, context, answers: the fields; answers are `{text: [...], answer_start: [...]}`.
        unanswerable: whether a question may have no answer (SQuAD 2.0).
    """

    kind: ClassVar[str] = "extraction"
    metric = "f1"

    def __init__(
        self,
        data_dir: str | None,
        variant: str | None = None,
        *,
        question: str = "question",
        context: str = "context",
        answers: str = "answers",
        unanswerable: bool = False,
        **common: Unpack[Common],
    ):
        super().__init__(data_dir, variant, **common)
        self.fields, self._answers, self.unanswerable = [question, context], answers, unanswerable

    def score(
        self, predictions: Sequence[Prediction], examples: Sequence[Example]
    ) -> dict[str, float]:
        """Return exact match and token F1, 0-100, as SQuAD's official scripts do."""
        guesses = [p.value for p in predictions]
        golds = [[answer.text for answer in e.target] for e in examples]
        return (squad_v2_scores if self.unanswerable else squad_scores)(guesses, golds)

    def target(self, row: Row, unlabelled: Example) -> list[Answer]:
        """Return the right answers, their offsets checked."""
        found = spans(row, self._answers, unlabelled.fields[self.fields[1]])
        if not found and not self.unanswerable:
            raise UserError(f"{row.where}: no answer, but task {self.name} has one to each.")
        return found


def spans(row: Row, field: str, context: str) -> list[Answer]:
    """Return the answers of a row.

    Raises:
        UserError: they are not texts with offsets, or a text does not stand at its offset.
    """
    raw = row.value(field)
    parts = raw if isinstance(raw, dict) else {}
    texts: Any = parts.get("text")
    starts: Any = parts.get("answer_start")
    if not _fit(texts, str) or not _fit(starts, int) or len(texts) != len(starts):
        raise UserError(
            f"{row.where}: {field} must be {{text: [...], answer_start: [...]}} of equal length."
        )
    for text, start in zip(texts, starts, strict=True):
        if start < 0 or not text or context[start : start + len(text)] != text:
            raise UserError(
                f"{row.where}: answer {shown(text)} does not stand at {shown(start)} of the "
                "context."
            )
    return [Answer(text, start) for text, start in zip(texts, starts, strict=True)]


def _fit(values: Any, kind: type) -> bool:
    return isinstance(values, list) and all(type(value) is kind for value in values)
