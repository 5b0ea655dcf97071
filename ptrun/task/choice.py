"""Multiple choice: one of several written options; their number may differ by example."""

from collections.abc import Sequence
from typing import Any, Literal, Unpack

from ptrun.errors import UserError
from ptrun.metrics import accuracy, squad_scores
from ptrun.task.dataset import GAP, Common, Dataset, Scores, is_texts
from ptrun.task.source import Row
from ptrun.types import Example, Prediction

_LETTERS = "ABCDEFGHIJKLMNOP"


class Choice(Dataset):
    """Texts and options; the target is the index of the right option, from 0.

    Args beyond those of `Common`:
        fields: the text fields beside the options, in reading order; a list of texts is joined.
        options: the field of the list of options, or the fields of one option each.
        answer: the field of the answer.
        answer_is: how the answer names an option: by `index`, by `letter` or by its own `text`.
        extra: further fields that patterns use.
        limits: the field with the most tokens of the texts in a pattern, by their names, in rows
            that have it (PPT's pre-training).
    """

    kind = "choice"
    answer = "option"
    metric = "accuracy"

    def __init__(
        self,
        *files: str | None,
        fields: list[str],
        options: str | list[str],
        answer: str,
        answer_is: Literal["index", "letter", "text"] = "index",
        extra: list[str] | None = None,
        limits: str | None = None,
        **common: Unpack[Common],
    ):
        super().__init__(*files, **common)
        self.fields, self.options, self._answer = fields, options, answer
        self._limits = limits
        self._answer_is, self._texts = answer_is, [*fields, *(extra or [])]
        self.columns = [*self._texts, *([options] if isinstance(options, str) else options)]

    def score(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> Scores:
        """Return the accuracy, 0-100."""
        return {"accuracy": accuracy([p.value for p in predictions], [e.target for e in examples])}

    def inputs(self, name: str, row: Row) -> Example:
        """Return the checked texts of a row, with its options in the field `options`."""
        texts: dict[str, Any] = {}
        for field in self._texts:  # a list of turns or sentences becomes one text
            value = row.value(field)
            texts[field] = "\n".join(value) if is_texts(value) else row.text(field)
        if not isinstance(self.options, str):
            texts["options"] = [row.text(field) for field in self.options]
        else:
            texts["options"] = row.value(self.options)
            if not is_texts(texts["options"]) or not 2 <= len(texts["options"]) <= len(_LETTERS):
                raise row.wrong(self.options, "2 to 16 texts")
        if self._limits and (most := row.data.get(self._limits)) is not None:
            values = most.values() if isinstance(most, dict) else [None]
            if not all(type(tokens) is int and tokens > 0 for tokens in values):
                raise row.wrong(self._limits, 'tokens by field, as in {"query": 400}')
            texts["limits"] = most
        return Example(name, texts, 0)

    def target(self, row: Row, unlabelled: Example) -> int:
        """Return the index of the right option."""
        raw, options = row.value(self._answer), unlabelled.fields["options"]
        names: Sequence[Any] = {
            "index": range(len(options)),
            "letter": list(_LETTERS[: len(options)]),  # a list: "AB" is in the text "ABC"
            "text": options,
        }[self._answer_is]
        fits = type(raw) is (int if self._answer_is == "index" else str)
        if not fits or raw == "" or raw not in names:
            raise row.wrong(self._answer, f"the {self._answer_is} of one of {len(options)} options")
        return names.index(raw)  # of equal options the first, as in the official code


# Entity choice: the entity of a passage that fills the gap of a query (ReCoRD).


class EntityChoice(Dataset):
    """Passages, queries with a gap and candidate entities; the target lists the right entities.

    A prediction is one entity. The field `entities` holds the candidates. Bullet points of the
    passage become dashes, as in all official code.
    """

    kind = "entity_choice"
    answer = "entity"
    metric = "f1"
    fields = ("passage", "query")
    options = "entities"
    columns = (*fields, options)

    def score(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> Scores:
        """Return exact match and token F1, the best over the right entities, 0-100."""
        return squad_scores([p.value for p in predictions], [e.target for e in examples])

    def inputs(self, name: str, row: Row) -> Example:
        """Return the checked passage, query and candidates of a row."""
        passage, query = row.text("passage").replace("@highlight\n", "- "), row.text("query")
        entities = row.value("entities")
        if not is_texts(entities) or GAP not in query:
            raise UserError(
                f"{row.where}: expected a list of texts in entities, and {GAP} in query."
            )
        fields = {"passage": passage, "query": query, "entities": entities}
        return Example(name, fields, entities[:1])

    def target(self, row: Row, unlabelled: Example) -> list[str]:
        """Return the right entities, which need not be among the candidates."""
        answers: Any = row.value("answers")
        if not is_texts(answers):
            raise row.wrong("answers", "a list of texts")
        return list(answers)
