"""Generation: a text is written after a text, or as the next turn of a conversation."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, Unpack

from ptrun.errors import UserError
from ptrun.task.conversation import answered, asked
from ptrun.task.dataset import MESSAGES, Common, Dataset, Scores, is_texts
from ptrun.task.reasoning import checked
from ptrun.task.source import Row
from ptrun.task.text_metrics import AnswersBy, TextMetric, signatures, text_scores
from ptrun.types import Example, Prediction

PVPS: Mapping[str, Any] = {"plain": "{%s} {mask}", "soft": "{soft:8} {%s} {mask}"}


class Generation(Dataset):
    """Texts with an answer in words. The target is a list of references; the first is learned.

    Args beyond those of `Common`:
        fields: the text fields. `pvps` say how they are read; without one they stand in order,
            and the answer follows after a space.
        target: the field of the answer: a text, a list of references, or SQuAD's answers.
        messages: instead of both, the field of a conversation (`ptrun.task.conversation`), whose
            last learned turn is the answer.
        metrics: see `ptrun.task.text_metrics`; the first selects with `train.select=metric`.
        extra: further fields that patterns use.
        answers_by: how the metrics divide texts into tokens; see `AnswersBy` there.
    """

    kind = "generation"
    answer = "text"
    first_metric: str | None = None
    """A metric of a kind's own, which is reported before `metrics`."""

    def __init__(
        self,
        *files: str | None,
        fields: list[str] | None = None,
        target: str | None = None,
        messages: str | None = None,
        metrics: list[TextMetric] | None = None,
        extra: list[str] | None = None,
        answers_by: AnswersBy = "auto",
        **common: Unpack[Common],
    ):
        super().__init__(*files, **common)
        if (messages is None) == (fields is None or target is None):
            raise UserError(f"task {self.name}: name fields and target, or messages.")
        self._messages, self._target, self.answers_by = messages, target, answers_by
        self.fields = [MESSAGES] if messages else list(fields or [])
        self.columns = [] if messages else [*self.fields, *(extra or [])]
        self.metrics: list[TextMetric] = list(metrics or ["f1", "exact_match"])
        self.metric, self.blank = self.first_metric or self.metrics[0], []
        if not messages and not self.pvps:
            self.pvps = written_pvps(self.fields)

    @property
    def reads(self) -> Sequence[str]:
        """The fields of a file that `unlabelled` needs."""
        return [self._messages] if self._messages else super().reads

    def inputs(self, name: str, row: Row) -> Example:
        """Return the fields of a row, or the turns of its conversation before the answer."""
        if self._messages is None:
            return super().inputs(name, row)
        return Example(name, asked(row, self._messages).fields, self.blank)

    def example(self, name: str, row: Row) -> Example:
        """Return the checked example of a row; `name` is its id."""
        if self._messages is None:
            return super().example(name, row)
        talk, _ = answered(row, self._messages)
        if talk is None:
            raise UserError(f"{row.where}: no turn of {self._messages} is learned.")
        return Example(name, talk.fields, talk.target)

    def target(self, row: Row, unlabelled: Example) -> list[str]:
        """Return the references."""
        assert self._target is not None
        return references(row, self._target)

    def signatures(self, examples: Sequence[Example]) -> Mapping[str, str]:
        """Return how the metrics of examples are computed, with the versions of packages."""
        return signatures(self.metrics, [e.target for e in examples], self.answers_by)

    def score(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> Scores:
        """Return the metrics of written texts, and the loss and perplexity of the answers."""
        golds = [e.target for e in examples]
        return text_scores(self.metrics, predictions, golds, self.answers_by)


class Reasoning(Generation):
    """Questions of Reasoning Gym (`ptrun.task.reasoning`).

    Scores are `checked`, the mean of what the generator's own checker gives, 0-100, and `metrics`.
    """

    first_metric = "checked"

    def inputs(self, name: str, row: Row) -> Example:
        """Return the question, with what its checker reads."""
        example = super().inputs(name, row)
        return replace(example, fields={**example.fields, "entry": row.data.get("entry")})

    def score(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> Scores:
        """Return the scores; without texts those of the answers' tokens alone."""
        pairs = list(zip(predictions, examples, strict=True))
        scores = super().score(predictions, examples)
        if any(prediction.value is None for prediction in predictions):
            return scores
        origin = self._source.origin
        checks = [checked(origin, str(p.value), e.fields["entry"]) for p, e in pairs]
        return {"checked": 100 * fmean(checks), **scores}


def written_pvps(fields: Sequence[str]) -> dict[str, Any]:
    """Return the patterns of a task that has none: its fields in order, then the answer."""
    joined = "} {".join([f"~{fields[0]}", *fields[1:]])
    return {name: {"pattern": form % joined} for name, form in PVPS.items()}


def references(row: Row, column: str) -> list[str]:
    """Return the references of a row: a text, a list of texts, or SQuAD's answers."""
    raw = row.value(column)
    texts: Any = raw.get("text") if isinstance(raw, dict) else raw
    texts = [str(raw)] if isinstance(raw, str | int | float) else texts
    if not is_texts(texts) or not all(text.strip() for text in texts):
        raise row.wrong(column, "a text, or a list of texts")
    return list(texts)
