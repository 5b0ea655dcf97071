"""Generation: a text is written after a text, or as the next turn of a conversation."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, Unpack

from ptrun.errors import UserError, names, shown
from ptrun.task.dataset import MESSAGES, Common, Dataset, Scores, is_texts
from ptrun.task.reasoning import checked
from ptrun.task.source import Row
from ptrun.task.text_metrics import TextMetric, signatures, text_scores
from ptrun.types import Example, Prediction

_ROLES = ("system", "user", "assistant", "tool")
_READ = ("role", "content")
SAYS_LEARNED = (
    "tools", "functions", "weight", "train", "loss", "loss_mask", "trainable",
    "chat_template_kwargs",
)  # fmt: skip
"""Columns beside a conversation that say what is learned of it, or how it is rendered."""
EMPTY: tuple[Any, ...] = (None, "", [], {})
"""Values of a key that says nothing."""
PVPS: Mapping[str, Any] = {"plain": "{%s} {mask}", "soft": "{soft:8} {%s} {mask}"}


class Generation(Dataset):
    """Texts with an answer in words. The target is a list of references; the first is learned.

    Args beyond those of `Common`:
        fields: the text fields. `pvps` say how they are read; without one they stand in order,
            and the answer follows after a space.
        target: the field of the answer: a text, a list of references, or SQuAD's answers.
        messages: instead of both, the field of a conversation: a list of `{"role", "content"}`
            whose last turn is the answer.
        metrics: see `ptrun.task.text_metrics`; the first selects with `train.select=metric`.
        extra: further fields that patterns use.
    """

    kind = "generation"
    answer = "text"
    first_metric: str | None = None
    """A metric of a kind's own, which is reported before `metrics`."""

    def __init__(
        self,
        data_dir: str | None,
        variant: str | None = None,
        *,
        fields: list[str] | None = None,
        target: str | None = None,
        messages: str | None = None,
        metrics: list[TextMetric] | None = None,
        extra: list[str] | None = None,
        **common: Unpack[Common],
    ):
        super().__init__(data_dir, variant, **common)
        if (messages is None) == (fields is None or target is None):
            raise UserError(f"task {self.name}: name fields and target, or messages.")
        self._messages, self._target = messages, target
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
        return Example(name, {MESSAGES: conversation(row, self._messages)[0]}, self.blank)

    def target(self, row: Row, unlabelled: Example) -> list[str]:
        """Return the references."""
        if self._messages is not None:
            return answered(row, self._messages)
        assert self._target is not None
        return references(row, self._target)

    @property
    def signatures(self) -> Mapping[str, str]:
        """How packages computed the metrics, with their versions."""
        return signatures(self.metrics)

    def score(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> Scores:
        """Return the metrics of written texts, and the loss and perplexity of the answers."""
        return text_scores(self.metrics, predictions, [e.target for e in examples])


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


def answered(row: Row, column: str) -> list[str]:
    """Return the answer of a conversation."""
    turns, answer = conversation(row, column)
    if not (answer and answer[0].strip() and turns):
        raise UserError(
            f"{row.where}: {column} ends with {shown(turns[-1]['role'] if turns else '')}; the "
            "last turn must be the assistant's answer to a turn before it."
        )
    return answer


def conversation(row: Row, column: str) -> tuple[list[dict[str, str]], list[str]]:
    """Return the turns of a conversation before the answer, and the answer: the last turn.

    Raises:
        UserError: it is no list of `{"role", "content"}` with texts, or the row says more of what
            is learned.
    """
    for key in SAYS_LEARNED:
        if row.data.get(key) not in EMPTY:
            raise UserError(
                f"{row.where}: {key} is {shown(row.data[key])}, which ptrun does not read.\nDelete "
                f"{key} if it changes nothing, or the row."
            )
    raw = row.value(column)
    turns = raw if isinstance(raw, list) else []
    wrong = next((turn for turn in turns if not _is_turn(turn)), None if turns else raw)
    if wrong is not None or not turns:
        raise UserError(
            f"{row.where}: {column} has {shown(wrong)}; expected a list of "
            '{"role": ROLE, "content": TEXT}, ROLE one of ' + f"{', '.join(_ROLES)}."
        )
    for number, turn in enumerate(turns, 1):
        if more := [key for key, value in turn.items() if key not in _READ and value not in EMPTY]:
            raise UserError(
                f"{row.where}: turn {number} of {column} has {names(more)}, which ptrun does not "
                f"read. Delete it from the turn if it changes nothing, or the row."
            )
    plain = [{"role": turn["role"], "content": turn["content"]} for turn in turns]
    if plain[-1]["role"] != "assistant":
        return plain, []
    return plain[:-1], [plain[-1]["content"]]


def _is_turn(turn: Any) -> bool:
    if not isinstance(turn, dict):
        return False
    empty_call = turn.get("content") is None and turn.get("tool_calls")  # is told by that key
    return turn.get("role") in _ROLES and (empty_call or is_texts([turn.get("content")]))
