"""Classification: one label for a text or a pair of texts."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Required, Unpack

from ptrun.errors import UserError, shown
from ptrun.metrics import Metric, multirc_scores, pearson, score, spearman
from ptrun.task.dataset import Common, Dataset, Part, Scores
from ptrun.task.source import Row
from ptrun.types import Example, Prediction

_LOG = logging.getLogger(__name__)


class Keys(Common, total=False):
    """The keys that all kinds of classification take from YAML, as in `Classification`."""

    fields: Required[list[str]]
    label: Required[str]
    labels: Required[dict[str, str | int | bool]]
    metrics: list[Metric] | None
    positive: str | None
    extra: list[str] | None


class Classification(Dataset):
    """Texts, or pairs of texts, with one label each.

    Args beyond those of `Common`:
        fields: the one or two text fields, in the order the model reads them.
        label: the field of the label.
        labels: each label's name, with its raw value in the files.
        metrics: the metrics to report; the first selects. `f1` and `accuracy_f1` need `positive`.
        positive: the label that binary F1 is about.
        extra: further fields that patterns use.
    """

    kind = "classification"
    stratified = True

    def __init__(
        self,
        *files: str | None,
        fields: list[str],
        label: str,
        labels: dict[str, str | int | bool],
        metrics: list[Metric] | None = None,
        positive: str | None = None,
        extra: list[str] | None = None,
        **common: Unpack[Common],
    ):
        super().__init__(*files, **common)
        self.labels: Sequence[str] = list(labels)
        self.fields, self.columns = fields, [*fields, *(extra or [])]
        self.metrics: list[Metric] = list(metrics or ["accuracy"])
        self.metric: str = self.metrics[0]
        self.positive = positive
        self.blank, self._label = self.labels[0], label
        self._raw: Mapping[Any, str] = {raw: name for name, raw in labels.items()}
        if not all(isinstance(label, str) for label in labels):
            raise UserError(
                f"task {self.name}: labels are {list(labels)}, not texts. Quote yes, no, on, off."
            )
        if not 1 <= len(fields) <= 2:
            raise UserError(
                f"task {self.name}: fields is {fields}; expected one or two. Join others by "
                "task.written."
            )
        if positive is None and {"f1", "accuracy_f1"} & set(self.metrics):
            raise UserError(f"task {self.name}: F1 needs task.positive, one of {self.labels}.")

    def score(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> Scores:
        """Return the metrics of the task, 0-100."""
        guesses, golds = [p.value for p in predictions], [e.target for e in examples]
        return {name: score(name, guesses, golds, positive=self.positive) for name in self.metrics}

    def target(self, row: Row, unlabelled: Example) -> str:
        """Return the label of a raw value; a file may also hold the label's name."""
        raw = row.value(self._label)
        if isinstance(raw, str) and raw in self.labels:
            return raw
        if isinstance(raw, bool | str | int) and raw in self._raw:
            return self._raw[raw]
        allowed = ", ".join(f"{name} ({value!r})" for value, name in self._raw.items())
        raise UserError(
            f"{row.where}: {self._label} is {shown(raw)}; task {self.name} has {allowed}."
        )


# Grouped binary classification: several answers to one question, each right or wrong (MultiRC).


class Grouped(Classification):
    """Classification whose exact match counts whole groups.

    Args beyond those of `Common`:
        fields, label, labels, positive, extra: as in `Classification`, with two labels.
        group: the fields that are equal within a group; MultiRC's own index is not unique.
    """

    def __init__(self, *files: str | None, group: list[str], **keys: Unpack[Keys]):
        super().__init__(*files, **keys)
        if len(self.labels) != 2 or self.positive not in self.labels:
            raise UserError(f"task {self.name}: expected two labels, one of them task.positive.")
        self.metric, self._group = "f1a", group

    def score(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> Scores:
        """Return F1 over all answers, exact match of groups, and accuracy, 0-100."""
        guesses, golds = [p.value for p in predictions], [e.target for e in examples]
        groups = [e.group for e in examples]
        scores = multirc_scores(guesses, golds, groups, positive=self.positive)
        return {**scores, **super().score(predictions, examples)}

    def example(self, name: str, row: Row) -> Example:
        """Return the checked example of a row, with its group."""
        group = "\n".join(row.text(field) for field in self._group)
        return replace(super().example(name, row), group=group)


# Span verification: does a pronoun refer to a given noun phrase (WSC)?

Starred = Literal["word", "pronoun"]
_MARKING = ["text", "span1_index", "span2_text", "span2_index"]


class SpanCheck(Classification):
    """Classification of (text, noun phrase, pronoun).

    Rows have `text`, `span1_text`, `span2_text` and the pronoun's word index `span2_index`. An
    example also has the field `marked`: the text with `*` around this one occurrence of the
    pronoun. `fields` may list it.

    Args beyond those of `Common`:
        fields, label, labels, metrics, positive, extra: as in `Classification`.
        starred: what of `him,` has the stars: the `word`, or the `pronoun`, which P-tuning's code
            splits off: `*him* ,`.
    """

    kind = "span_check"
    fills_gap = True
    stratified = False

    def __init__(self, *files: str | None, starred: Starred = "word", **keys: Unpack[Keys]):
        super().__init__(*files, **keys)
        self._starred = starred

    @property
    def reads(self) -> Sequence[str]:
        """The fields of a file that `unlabelled` needs, including those that mark the pronoun."""
        fields = [field for field in super().reads if field != "marked"]
        return list(dict.fromkeys([*fields, *_MARKING]))

    def inputs(self, name: str, row: Row) -> Example:
        """Return the checked texts of a row, including the marked one."""
        marked = {"marked": _marked(row, self._starred)}
        example = super().inputs(name, row.with_fields(marked))
        return replace(example, fields={**example.fields, **marked})


def _marked(row: Row, starred: Starred) -> str:
    words, pronoun = row.text("text").split(), row.text("span2_text")
    noun, size = row.value("span1_index"), len(pronoun.split())
    if type(noun) is not int or not 0 <= noun < len(words):
        raise row.wrong("span1_index", "a word's index")
    place = _place(row, words, pronoun)
    marked = " ".join(words[place : place + size])
    star = pronoun if starred == "pronoun" and marked.startswith(pronoun) else marked
    rest = [marked.removeprefix(star)] if star != marked else []
    return " ".join([*words[:place], f"*{star}*", *rest, *words[place + size :]])


def _place(row: Row, words: list[str], pronoun: str) -> int:
    """Return the pronoun's word index; a published index may be off by one, as in PET's code."""
    index, size = row.value("span2_index"), len(pronoun.split())
    for place in (index, index - 1, index + 1) if type(index) is int and index >= 0 else ():
        if _bare(" ".join(words[max(place, 0) : place + size])) == _bare(pronoun) != "":
            return max(place, 0)
    raise UserError(f"{row.where}: the text does not have {shown(pronoun)} at word {shown(index)}.")


def _bare(words: str) -> str:
    return words.lower().strip(".,;:!?\"'()")


# Regression: one number for a text or a pair of texts, scored by correlation.

_ENOUGH = 50  # numbers of a part; fewer may all be small by chance


def correlations(guesses: Sequence[float], golds: Sequence[float]) -> Scores:
    """Return Pearson's and Spearman's correlation and their mean, -100 to 100."""
    linear, ranked = pearson(guesses, golds), spearman(guesses, golds)
    return {"pearson_spearman": (linear + ranked) / 2, "pearson": linear, "spearman": ranked}


class Regression(Dataset):
    """Texts, or pairs of texts, with one number each.

    Args beyond those of `Common`:
        fields: the one or two text fields, in the order the model reads them.
        label: the field of the number.
        low, high: bounds of the number, inclusive.
        unit: the loss compares numbers divided by it. Predictions are on the scale of the files. A
            file of 50 rows or more without a number above `high / unit` is read as already divided.
    """

    kind = "regression"
    answer = "number"
    metric = "pearson_spearman"

    def __init__(
        self,
        *files: str | None,
        fields: list[str],
        label: str,
        low: float,
        high: float,
        unit: float = 1.0,
        **common: Unpack[Common],
    ):
        super().__init__(*files, **common)
        self.fields = self.columns = fields
        self.blank, self._label, self.low, self.high = float(low), label, low, high
        self.unit = float(unit)
        if self.unit <= 0:
            raise UserError(f"task.unit is {unit}; use a number above 0.")

    def load(self, part: Part, *, paper: bool = False) -> Sequence[Example]:
        """Return the examples of a part; numbers that a file has divided by `unit` are restored."""
        examples = super().load(part, paper=paper)
        most = self.high / self.unit
        divided = self.unit > 1 and all(e.target <= most for e in examples)
        if not divided or len(examples) < _ENOUGH:
            return examples
        _LOG.warning(
            "task %s: none of the %d numbers of %s is above %g, so they are read as divided by %g "
            "and multiplied. If they are not, type task.unit=1",
            *(self.name, len(examples), part, most, self.unit),
        )
        return [replace(e, target=e.target * self.unit) for e in examples]

    def score(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> Scores:
        """Return Pearson's and Spearman's correlation and their mean, -100 to 100."""
        guesses, golds = [p.value for p in predictions], [e.target for e in examples]
        if len(golds) < 2:
            raise UserError(f"task={self.name}: give dev and test two examples or more.")
        return correlations(guesses, golds)

    def target(self, row: Row, unlabelled: Example) -> float:
        """Return the number."""
        raw: Any = row.value(self._label)
        number = isinstance(raw, int | float) and not isinstance(raw, bool)
        if not number or not self.low <= raw <= self.high:
            raise row.wrong(self._label, f"a number from {self.low} to {self.high}")
        return float(raw)
