"""Entity choice: which entity of a passage fills the gap of a query (ReCoRD)."""

from collections.abc import Sequence
from typing import ClassVar, Unpack

from ptrun.errors import UserError
from ptrun.task.dataset import Common, Dataset
from ptrun.task.metrics.record import record_scores
from ptrun.task.source import Row
from ptrun.types import Example, Prediction

GAP = "@placeholder"


class EntityChoice(Dataset):
    """Passages, queries with a gap, candidate entities; the target is the list of right ones.

    A prediction is one entity. The field `entities` holds the candidates, and bullet points of the
    passage are written as dashes, as all official code does.
    """

    kind: ClassVar[str] = "entity_choice"
    metric = "f1"
    fields = ("passage", "query")

    def __init__(self, data_dir: str | None, variant: str | None = None, **common: Unpack[Common]):
        super().__init__(data_dir, variant, **common)

    def score(
        self, predictions: Sequence[Prediction], examples: Sequence[Example]
    ) -> dict[str, float]:
        """Return exact match and token F1, the best over the right entities, 0-100."""
        return record_scores([p.value for p in predictions], [e.target for e in examples])

    def example(self, name: str, row: Row) -> Example:
        """Return the example of a row, checked."""
        passage, query = row.text("passage").replace("@highlight\n", "- "), row.text("query")
        entities, answers = row.value("entities"), row.value("answers")
        if not _are_texts(entities) or not _are_texts(answers) or GAP not in query:
            raise UserError(
                f"{row.where}: expected lists of texts in entities and answers, and {GAP} in query."
            )
        return Example(name, {"passage": passage, "query": query, "entities": entities}, answers)


def _are_texts(values: object) -> bool:
    return isinstance(values, list) and bool(values) and all(isinstance(v, str) for v in values)
