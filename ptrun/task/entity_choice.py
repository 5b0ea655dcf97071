"""Entity choice: the entity of a passage that fills the gap of a query (ReCoRD)."""

from collections.abc import Sequence
from typing import Any, ClassVar, Unpack

from ptrun.errors import UserError
from ptrun.metrics.record import record_scores
from ptrun.task.base import Scores
from ptrun.task.dataset import Common, Dataset, is_texts
from ptrun.task.shown import shown
from ptrun.task.source import Row
from ptrun.types import Example, Prediction

GAP = "@placeholder"


class EntityChoice(Dataset):
    """Passages, queries with a gap and candidate entities; the target lists the right entities.

    A prediction is one entity. The field `entities` holds the candidates. Bullet points of the
    passage become dashes, as in all official code.
    """

    kind: ClassVar[str] = "entity_choice"
    answer: ClassVar[str] = "entity"
    metric = "f1"
    fields = ("passage", "query")
    columns = (*fields, "entities")

    def __init__(self, data_dir: str | None, variant: str | None = None, **common: Unpack[Common]):
        super().__init__(data_dir, variant, **common)

    def score(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> Scores:
        """Return exact match and token F1, the best over the right entities, 0-100."""
        return record_scores([p.value for p in predictions], [e.target for e in examples])

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
            raise UserError(f"{row.where}: answers is {shown(answers)}; expected a list of texts.")
        return list(answers)
