"""A run in Python: its results, its prompt, and predictions."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptrun.api.quiet import quiet, same_random
from ptrun.errors import UserError
from ptrun.folder.find import Run as Found
from ptrun.folder.header import PROMPT
from ptrun.folder.summary import summary
from ptrun.types import RunResult

if TYPE_CHECKING:
    from torch import Tensor

    from ptrun.method.base import Method
    from ptrun.runs.finished import Finished


class Run:
    """A run that has ended, read from its folder.

    Attributes:
        folder: the run folder.
        result: the content of `result.json`, or of `failure.json`.
    """

    def __init__(self, folder: Path, result: RunResult, options: Sequence[str] = ()):
        self.folder, self.result = folder, result
        self._options = list(options)

    @property
    def id(self) -> str:
        """The run id, which is the name of the folder."""
        return self.result.run_id

    @property
    def status(self) -> str:
        """`finished` or `failed`; `result.reason` says why it failed."""
        return self.result.status

    @property
    def seed(self) -> int:
        """The model seed."""
        return self.result.seed

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        """Every metric by split: `{"dev": {...}, "test": {...}}`, 0-100. Empty if it failed."""
        return {split: dict(scores) for split, scores in self.result.metrics.items()}

    @property
    def config(self) -> dict[str, Any]:
        """The composed configuration, with paths, as in `run.yaml`.

        Raises:
            UserError: an older version of ptrun made the run, or the file is damaged.
        """
        from ptrun.folder import request  # imports Hydra

        kept = request.read(self.folder)
        if kept is None:
            raise UserError(f"{self.folder}: an older version made this run, without run.yaml.")
        return kept.config

    @property
    def history(self) -> list[dict[str, Any]]:
        """The rows of `metrics.jsonl`: steps with their loss, evaluations on dev, and the test.

        Raises:
            UserError: a line is damaged.
        """
        return self._rows("metrics.jsonl")

    @property
    def predictions(self) -> list[dict[str, Any]]:
        """The rows of `predictions.jsonl`: `id`, `prediction` and `target` of each test example.

        Raises:
            UserError: a line is damaged.
        """
        return self._rows("predictions.jsonl")

    @property
    def prompt(self) -> "dict[str, Tensor]":
        """The learned tensors, on the CPU, as `prompt.safetensors` has them.

        P is `method.length`, H the hidden size, n the number of layers with a prefix.

        | method | tensor | shape |
        |---|---|---|
        | `prompt_tuning` | `prompt.table` | `[P, H]` |
        | `ptuning` | `prompt.vectors`, one for each slot of the pattern | `[P, H]` |
        | `ptuning_v2` | `prompt.prefix`, keys at even slices, values at odd | `[P, 2n, heads, d]` |

        In `ptuning_v2` H is heads x d. Encoders of prompts are folded: the tensors are what the
        backbone gets. Other methods name theirs after their modules. A head of C labels is
        `readout.linear.weight [C, H]` and `readout.linear.bias [C]`. A run with a prompt for each
        relation has `RELATION/` before the names.

        Raises:
            UserError: the run kept no prompt, or the file is damaged.
        """
        from ptrun.folder import tensors

        file = self.folder / PROMPT
        if not file.is_file():
            raise UserError(
                f"{self.folder}: the run kept no {PROMPT}. Run it again with keep='weights', "
                "rerun=True."
            )
        return tensors.read(file, "Run it again with rerun=True.")[0]

    def predict(
        self,
        rows: Iterable[Mapping[str, Any]],
        *,
        probabilities: bool = False,
        top: int | None = None,
    ) -> list[dict[str, Any]]:
        """Return an answer for each row, as `ptrun predict` writes it.

        The backbone is loaded at the first call and kept.

        Args:
            rows: dicts with the fields of the run's task. A field `id` names the row, else its
                number from 1; other fields are ignored.
            probabilities: add the probability of every label.
            top: add this many of the likeliest labels.

        Returns:
            Dicts with `id`, `prediction` and, if the read-out gives them, `probability`,
            `probabilities` and `top`. Multiple choice has also `option`, the text.

        Raises:
            UserError: the run cannot predict, or a row does not suit its task.
        """
        from ptrun.predicting.answering import Detail, answers
        from ptrun.predicting.questions import given

        with quiet(), same_random():
            finished, methods = self._loaded
            detail = Detail(probabilities, top)
            asked = list(given(rows, finished.task, frozenset(finished.parts)))
            return list(answers(finished, methods, asked, detail))

    def __repr__(self) -> str:
        """Return id and state."""
        return f"<ptrun.Run {self.id}: {self.status}>"

    def __str__(self) -> str:
        """Return the summary that the command prints."""
        if self.status != "finished":
            return f"{self.folder}\n  failed: {self.result.reason}"
        return summary(self.result, self.folder.parent)

    def _rows(self, name: str) -> list[dict[str, Any]]:
        return Found(self.folder, self.result).rows(name) or []

    @cached_property
    def _loaded(self) -> "tuple[Finished, dict[str, Method]]":
        from ptrun.config.components import without_permission
        from ptrun.predicting.loading import ready

        finished = ready(str(self.folder), without_permission(self._options))
        return finished, finished.load()
