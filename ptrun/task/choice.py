"""Multiple choice: one of several written options, as many as an example has."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Unpack

from ptrun.errors import UserError
from ptrun.metrics.labels import accuracy
from ptrun.task.dataset import Common, Dataset
from ptrun.task.shown import shown
from ptrun.task.source import Row
from ptrun.types import Example, Prediction

_LETTERS = "ABCDEFGHIJKLMNOP"


class Choice(Dataset):
    """Texts, options, and which option is right; the target is its index from 0.

    Args beyond those of `Common`:
        fields: the text fields beside the options, in reading order; a list of texts is joined.
        options: the field of the list of options, or the fields of one option each.
        answer: the field of the answer.
        answer_is: how it names an option: by `index`, by `letter` or by its own `text`.
        extra: further fields that patterns use.
    """

    kind: ClassVar[str] = "choice"
    metric = "accuracy"

    def __init__(
        self,
        data_dir: str | None,
        variant: str | None = None,
        *,
        fields: list[str],
        options: str | list[str],
        answer: str,
        answer_is: Literal["index", "letter", "text"] = "index",
        extra: list[str] | None = None,
        **common: Unpack[Common],
    ):
        super().__init__(data_dir, variant, **common)
        self.fields, self._options, self._answer = fields, options, answer
        self._answer_is, self._extra = answer_is, extra or []

    def score(
        self, predictions: Sequence[Prediction], examples: Sequence[Example]
    ) -> dict[str, float]:
        """Return the accuracy, 0-100."""
        return {"accuracy": accuracy([p.value for p in predictions], [e.target for e in examples])}

    @property
    def columns(self) -> list[str]:
        """The texts and the options."""
        options = [self._options] if isinstance(self._options, str) else self._options
        return [*self.fields, *self._extra, *options]

    def inputs(self, name: str, row: Row) -> Example:
        """Return texts and options of a row, checked; these are in the field `options`."""
        texts: dict[str, Any] = {
            field: _joined(row, field) for field in [*self.fields, *self._extra]
        }
        return Example(name, {**texts, "options": self._read_options(row)}, 0)

    def _read_options(self, row: Row) -> list[str]:
        if isinstance(self._options, list):
            return [row.text(field) for field in self._options]
        options = row.value(self._options)
        if not _is_texts(options) or not 2 <= len(options) <= len(_LETTERS):
            raise UserError(
                f"{row.where}: {self._options} is {shown(options)}; expected 2 to 16 texts."
            )
        return list(options)

    def target(self, row: Row, unlabelled: Example) -> int:
        """Return the index of the right option."""
        raw, options = row.value(self._answer), unlabelled.fields["options"]
        known: Sequence[Any] = {
            "index": range(len(options)),
            "letter": list(_LETTERS[: len(options)]),  # a list: "AB" is in the text "ABC"
            "text": options,
        }[self._answer_is]
        fits = type(raw) is (int if self._answer_is == "index" else str)
        if not fits or raw == "" or raw not in known:
            raise UserError(
                f"{row.where}: {self._answer} is {shown(raw)}; expected the {self._answer_is} of "
                f"one of {len(options)} options."
            )
        return known.index(raw)  # equal options: the first, as the official code has it


def _joined(row: Row, field: str) -> str:
    """Return a text; a list of turns or sentences becomes one text."""
    found = row.value(field)
    if _is_texts(found):
        return "\n".join(found)
    return row.text(field)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(t, str) for t in value)
