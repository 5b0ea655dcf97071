"""Example: texts with a number of stars, of which the model predicts good or bad.

Change `target` to how a row of yours is labelled, and `score` to what you report.
"""

from collections.abc import Sequence

from ptrun.errors import UserError
from ptrun.task.classification import Classification
from ptrun.task.dataset import Scores
from ptrun.task.source import Row
from ptrun.types import Example, Prediction

_ENOUGH = 4  # stars of a good text


class ExampleTask(Classification):
    """Texts that are good if they have four stars or more.

    Its options are those of `Classification`. Other kinds to start from are in `ptrun.task`:
    `Regression`, `Choice`, `Tagging`, `Extraction`, `MultiSpan`.
    """

    def target(self, row: Row, unlabelled: Example) -> str:
        """Return the label of a row; it is one of `labels` in the YAML file."""
        stars = row.value("stars")
        if not isinstance(stars, int):
            raise UserError(f"{row.where}: stars is {stars!r}; expected a whole number.")
        return "good" if stars >= _ENOUGH else "bad"

    def score(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> Scores:
        """Return every metric by name, 0-100; the first of `metrics` in the YAML file selects.

        Here the accuracy, and of the good texts the share that was found.
        """
        scores = super().score(predictions, examples)
        pairs = zip(predictions, examples, strict=True)
        found = [p.value == e.target for p, e in pairs if e.target == "good"]
        return {**scores, "good_found": 100 * sum(found) / max(1, len(found))}
