"""The functions of `import ptrun`. They do what the commands do, and return what those print."""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptrun.config.writing import value_text
from ptrun.errors import UserError
from ptrun.folder.digest import PROMPT
from ptrun.folder.find import RunFolder as Found
from ptrun.folder.result import summary
from ptrun.types import RunResult

if TYPE_CHECKING:
    from torch import Tensor

    from ptrun.predicting.together import Loaded, Together
    from ptrun.reporting.table import Results


# A run in Python: its results, its prompt, and predictions.


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
        """The composed configuration, with paths, as in `run.yaml`."""
        from ptrun.folder import request  # imports Hydra

        return request.read(self.folder).config

    @property
    def history(self) -> list[dict[str, Any]]:
        """The rows of `metrics.jsonl`: steps with their loss, evaluations on dev, and the test."""
        return self._rows("metrics.jsonl")

    @property
    def predictions(self) -> list[dict[str, Any]]:
        """The rows of `predictions.jsonl`: `id`, `prediction` and `target` of each test example."""
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
        from ptrun.predicting.answering import Detail
        from ptrun.predicting.together import chunks

        with quiet(), same_random():
            shared, loaded = self._loaded
            asked = [(self.id, question) for question in loaded[self.id].asked(rows)]
            every = chunks(shared, loaded, asked, Detail(probabilities, top))
            return [answer for chunk in every for _, answer in chunk]

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
    def _loaded(self) -> "tuple[Together, dict[str, Loaded]]":
        from ptrun.config.components import without_permission
        from ptrun.predicting.answering import ready
        from ptrun.predicting.together import together

        return together([ready(str(self.folder), without_permission(self._options))])


_COMMAND_ONLY = ("sweep.on", "sweep.dry_run", "sweep.shard")


def run(*overrides: str, **values: Any) -> Run:
    """Do one run, or return it if it is finished; an interrupted one resumes.

        ptrun.run(method="ptuning_v2", task="conll03", seed=1, train={"lr": 1e-2})
        ptrun.run("method=ptuning_v2", "train.lr=1e-2", task="conll03", seed=1)

    Args:
        overrides: `KEY=VALUE`, as on the command line.
        values: the same as Python values; a dict holds the keys inside a key.

    Raises:
        UserError: the configuration is wrong; nothing was written.
        RunFailed: training failed; the folder has the reason.
    """
    from ptrun.config.components import permission, without_permission
    from ptrun.config.compose import compose_run

    line = typed(overrides, values)
    with quiet():
        composed = compose_run(without_permission(line))
        from ptrun.runs.launch import launch  # imports torch

        with same_random():
            done = launch(composed)
    return Run(composed.outputs / composed.name / done.run_id, done, permission(line))


def sweep(
    runs: Iterable[Mapping[str, Any] | Sequence[str] | str], *overrides: str, **values: Any
) -> list[Run]:
    """Do runs as `ptrun -m` does: in worker processes, sharing passes where possible.

        ptrun.sweep([{"seed": seed} for seed in (1, 2, 3)], method="ptuning_v2", task="cb")

    Args:
        runs: for each run what only it has: a dict of values, or overrides.
        overrides: of all runs, as in `run`.
        values: of all runs, as in `run`.

    Returns:
        The runs in order. A run whose training failed has the status `failed`.

    Raises:
        UserError: some runs were refused, or other processes do them. The others have ended, and
            the same call goes on from there.
    """
    from ptrun.config.components import permission, without_permission
    from ptrun.folder import result
    from ptrun.sweeps.job import Job
    from ptrun.sweeps.scheduler import Scheduler
    from ptrun.sweeps.sweep import options_of
    from ptrun.sweeps.view import View

    with quiet():
        line = typed(overrides, values)
        common = without_permission(line)
        for override in common:
            if override.lstrip("+").partition("=")[0] in _COMMAND_ONLY:
                raise UserError(f"{override}: type it on the command line: ptrun -m {override}.")
        lines = [typed([], r) if isinstance(r, Mapping) else typed(r, {}) for r in runs]
        jobs = [Job(i, " ".join(line), [*common, *line]) for i, line in enumerate(lines)]
        Scheduler(jobs, options_of(common), View(len(jobs), quiet=True)).run()
    ended, left = [], []
    for job in jobs:
        has_ended = job.folder is not None and job.stage in ("finished", "failed")
        done = result.read(job.folder) if has_ended and job.folder else None
        if done is None or job.folder is None:
            left.append(f"{job.title or f'run {job.index + 1}'}: {job.text or job.stage}")
        else:
            ended.append(Run(job.folder, done, permission(line)))
    if left:
        text = "\n  ".join(left)
        raise UserError(f"{len(left)} of {len(jobs)} runs are not done:\n  {text}")
    return ended


def predict(
    runs: Iterable[str | PathLike[str] | Run],
    rows: Iterable[Mapping[str, Any]],
    *,
    probabilities: bool = False,
    top: int | None = None,
    **values: Any,
) -> list[dict[str, Any]]:
    """Return an answer for each row; the field `run` of a row names its run.

    All runs share the passes of one frozen backbone, which is loaded once for the call.

        ptrun.predict([first, second], [{"run": first.id, "sentence": "a bright film"}])

    Args:
        runs: finished runs over one backbone: their folders, ids, or `Run`.
        rows: dicts with `run` and the fields of that run's task, as in `Run.predict`.
        probabilities: add the probability of every label.
        top: add this many of the likeliest labels.
        values: as in `load`.

    Raises:
        UserError: a run cannot share the backbone, or a row does not suit its run.
    """
    from ptrun.config.components import without_permission
    from ptrun.predicting.answering import Detail, ready
    from ptrun.predicting.together import asked, chunks, together
    from ptrun.task.source import Row

    with quiet(), same_random():
        line = without_permission(typed((), values))
        names = [str(run.folder) if isinstance(run, Run) else str(run) for run in runs]
        shared, loaded = together([ready(name, line) for name in names])
        numbered = [Row(f"row {number}", row) for number, row in enumerate(rows, start=1)]
        finished = {name: each.run for name, each in loaded.items()}
        questions = list(asked(finished, numbered))
        every = chunks(shared, loaded, questions, Detail(probabilities, top))
        return [answer for chunk in every for _, answer in chunk]


def load(
    run: str | PathLike[str], *, outputs: str | PathLike[str] = "outputs", **values: Any
) -> Run:
    """Return a run that has ended.

    Args:
        run: its folder, its id, the start of its id, or the 8 digits at the end.
        outputs: the folder where ids are looked up.
        values: options of `Run.predict`, as `ptrun predict` takes them: `hardware="gpu"`,
            `backbone={"path": "DIR"}`, `data_dir="DIR"`.

    Raises:
        UserError: there is no such run, or more than one, or it has not ended.
    """
    from ptrun.folder.find import find

    place = find(str(run), "load", Path(outputs))
    options = typed([], {**values, "outputs": outputs})
    return Run(place.folder, place.result, options)


def report(
    source: str | PathLike[str] | Iterable[Run] = "outputs",
    *,
    over: str | None = None,
    best: int | None = None,
    vote: bool = False,
    labels: bool = False,
) -> "Results":
    """Return the table of results over seeds.

    Args:
        source: a folder of results, or runs.
        over: a key, such as `method.length`, whose values are merged into one row.
        best: add the mean of this many of the highest test scores.
        vote: add the score of the seeds' majority.
        labels: a row for each label or type of entity, with its scores on test.

    Raises:
        UserError: the folder is missing or has no result, or an option is wrong.
    """
    from ptrun.reporting.table import of_runs, table

    if isinstance(source, str | PathLike):
        return table(Path(source), over, best=best, vote=vote, labels=labels)
    runs = {run.folder: run.result for run in source}
    return of_runs(runs, f"{len(runs)} runs", over, best=best, vote=vote, labels=labels)


# Python values as the overrides of a command line.


def typed(overrides: Iterable[str], values: Mapping[str, Any]) -> list[str]:
    """Return overrides, and values as overrides: `train={"lr": 1e-2}` is `train.lr=0.01`.

    Raises:
        UserError: an override is not KEY=VALUE, or a value has no form on a command line.
    """
    from ptrun.config.identity import flat

    line = [overrides] if isinstance(overrides, str) else list(overrides)
    for override in line:
        if not isinstance(override, str) or not ("=" in override or override.startswith("~")):
            raise UserError(f"{override!r}: expected 'KEY=VALUE', such as 'method=ptuning_v2'.")
    line += [f"{key}={value_text(key, value)}" for key, value in flat(values, empties=True).items()]
    for override in line:  # what only the command line does
        if override.lstrip("+~").partition("=")[0] == "experiment":
            raise UserError(
                f"{override}: tables of papers run on the command line. Type ptrun {override}."
            )
    return line


# A call from Python leaves its process as it was: no output, same environment and random state.


@contextmanager
def quiet() -> Iterator[None]:
    """Show no progress and print nothing; put the environment back.

    Messages go to the logger `ptrun`, whose handlers and level are the caller's.
    """
    from huggingface_hub.utils import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    from ptrun.training.progress import silent

    logger, handler = logging.getLogger("ptrun"), logging.NullHandler()
    before, off = dict(os.environ), are_progress_bars_disabled()
    logger.addHandler(handler)  # else Python prints warnings that nobody handles
    if not off:
        disable_progress_bars()
    try:
        with silent():
            yield
    finally:
        if not off:
            enable_progress_bars()
        logger.removeHandler(handler)
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update({k: v for k, v in before.items() if os.environ.get(k) != v})


@contextmanager
def same_random() -> Iterator[None]:
    """Put torch's random state back."""
    import torch

    used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices=range(torch.cuda.device_count() if used else 0)):
        yield
