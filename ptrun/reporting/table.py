"""A table of results: mean, standard deviation and number of seeds for each cell."""

import io
import logging
import shutil
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any, get_args

from ptrun.errors import UserError
from ptrun.folder import result
from ptrun.folder.digest import is_number
from ptrun.folder.find import RunFolder
from ptrun.folder.scan import unfinished
from ptrun.metrics import Metric, pearson_and_spearman, score
from ptrun.reporting import formats
from ptrun.reporting.cells import NAMES, SeedGroup, cells, grouped, mean_of_best, mean_std
from ptrun.types import RunResult

_LOG = logging.getLogger(__name__)


# A table of results: `ptrun report` prints it, `ptrun.report` returns it.

_NAMES = ("task", "method", "differs in", "label")
_WORDS = (*_NAMES, "backbone", "setting", "protocol", "metric")
_NAMED = 3  # cells that lack a seed


@dataclass(frozen=True)
class Results:
    """A table of results; iterating yields its rows as dicts.

    It prints in the width of the terminal, and a notebook shows it as HTML.

    Args:
        rows: a dict of plain values for each cell. `dev` and `test` are means over seeds, `dev_std`
            and `test_std` sample standard deviations (None for one seed), `n` the number of seeds.
        printed: the same rows as text, with the folder of the results and notes.
    """

    rows: list[dict[str, Any]]
    printed: formats.Table

    @property
    def columns(self) -> list[str]:
        """The keys of a row."""
        return list(self.rows[0])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the rows."""
        return iter(self.rows)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    def __str__(self) -> str:
        """Return the printed table, without colours."""
        from rich.console import Console

        width, out = shutil.get_terminal_size((100, 24)).columns, io.StringIO()
        Console(file=out, width=width, color_system=None).print(self.printed)
        return out.getvalue().rstrip("\n")

    __repr__ = __str__

    def __rich__(self) -> formats.Table:
        """Return what `rich` prints."""
        return self.printed

    def csv(self, *, raw: bool = False) -> str:
        """Return the rows as CSV, with a header; an empty cell is an unknown value.

        A text that a spreadsheet would run as a formula begins with an apostrophe, unless `raw`.
        """
        return formats.to_csv(self.rows, raw=raw)

    def markdown(self) -> str:
        """Return the printed columns and the notes as Markdown."""
        return formats.markdown(self.printed) + "\n"

    def _repr_html_(self) -> str:
        return formats.html(self.printed)


_HARDLY = "hardly_learned"
_HEADERS = {"differs": "differs in", "tests": "tests by seed"}


@dataclass
class _Row:
    """A row that is filled column by column, as plain values and as text."""

    values: dict[str, Any] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)

    def add(self, key: str, value: Any, form: str = "{}", more: str = "") -> None:
        """Add a column, whose text is the value in a form; an unknown value is `-`."""
        self.values[key] = value
        name = _HEADERS.get(key, key.replace("_", " "))
        self.texts[name] = "-" if value is None else form.format(value) + more

    def add_scores(self, key: str, scores: Sequence[float], *, marked: bool = False) -> None:
        """Add mean and standard deviation; those of a cell that hardly learned have a mark."""
        self.values[key], self.values[f"{key}_std"] = mean_std(scores) if scores else (None, None)
        self.texts[key] = spread(scores) + " *" * (marked and bool(self.values[_HARDLY]))


_SEEDS = "mean ± standard deviation over seeds (n - 1), without failed runs"
_VOTE = (
    "vote: the test score of the majority label over seeds, or of the mean number; the earliest "
    "seed breaks a tie.\nIDPG's tables print both and divide the deviation by n, not n - 1"
)
_OVER = (
    "mean ± standard deviation (n - 1) over n values of {key}, each the mean of its seeds;\n"
    "best on dev: the test score of the values with the highest dev score"
)
_BEST = (
    "best {keep}: the mean of the {keep} highest test scores (DPT); optimistic, because "
    "test selects;\nwithin 2: the number of scores at most 2 points below the highest"
)


def table(root: Path, over: str | None = None, **columns: Any) -> Results:
    """Return the table of all runs below a folder; the options are those of `of_runs`."""
    if not root.is_dir():
        raise UserError(f"report {root}: no such folder; results are usually below `outputs`.")
    runs, damaged = result.read_all(root)
    if not runs:
        told = [f"report {root}: no result.json or failure.json below it.", *damaged]
        raise UserError("\n".join(told))
    for message in damaged:
        _LOG.warning("not counted: %s", message)
    shown = of_runs(runs, str(root), over, **columns)
    if over is None and not any(columns.values()):
        counts = unfinished(root, runs)
        left = [f"{counts[kind]} {kind}" for kind in ("running", "interrupted") if counts[kind]]
        if left:
            told = [f"not in the table: {', '.join(left)} (ptrun status {root})"]
            first, *notes = shown.printed.notes
            shown = replace(shown, printed=replace(shown.printed, notes=[first, *told, *notes]))
    return shown


def of_runs(
    runs: Mapping[Path, RunResult],
    title: str,
    over: str | None = None,
    *,
    best: int | None = None,
    vote: bool = False,
    labels: bool = False,
) -> Results:
    """Return the table of results by run folder.

    Args:
        runs: the results.
        title: the line above.
        over: a key, with a row for all of its values.
        best: adds the mean of this many of the highest test scores, the minimum, the number near
            the highest, and the scores of all seeds.
        vote: adds the score of the seeds' vote.
        labels: a row for each label or type of entity, with its scores on test.
    """
    if best is not None and (best < 1 or over is not None):
        raise UserError(f"report --best {best}: use 1 or more, and leave --over out.")

    # The runs that count: no trials of a search, and a run below two names is one seed.
    folders: dict[tuple[str, int], Path] = {}
    for folder, run in runs.items():
        if run.config.get("trial") is None:
            counted = folders.setdefault((run.run_id, run.seed), folder)
            if counted != folder:
                _LOG.warning("%s is the run of %s; it is counted once", folder, counted)
    if not folders:
        raise UserError(f"report {title}: no result.json or failure.json below it.")
    groups = cells([runs[folder] for folder in folders.values()], over)

    # A row for each label of each cell, or for each cell with the columns that are asked for.
    if labels:
        rows, notes = _label_rows(title, groups), [_LABELS]
    else:
        rows, notes = [_row(cell) for cell in groups], [_SEEDS]
        if over is not None:
            notes = [_OVER.format(key=over)]
            for row, cell in zip(rows, groups, strict=True):
                devs, tests = cell.scores("dev"), cell.scores("test")
                # values tie on dev, as 32 examples do: they count equally
                tied = [value for value, dev in devs.items() if dev == max(devs.values())]
                mean = statistics.fmean(tests[value] for value in tied) if tied else None
                row.add("best_on_dev", mean, "{:.2f}", f" ({', '.join(tied)})")
                row.values["best_values"] = tied
        elif best is not None:
            notes.append(_BEST.format(keep=best))
            for row, cell in zip(rows, groups, strict=True):
                _add_best(row, cell, best)
        elif vote:
            by_id = {runs[folder].run_id: folder for folder in folders.values()}
            notes.append(_VOTE)
            for row, cell in zip(rows, groups, strict=True):
                try:
                    row.add("vote", voted(cell.runs, by_id), "{:.2f}")
                except UserError as error:
                    row.add("vote", None)
                    if (reason := f"no vote: {error}") not in notes:
                        notes.append(reason)
        else:
            if any("document" in run.manifest for cell in groups for run in cell.runs):
                notes.append(_DOCUMENT)
                _add_documents(rows, groups)
            notes += _missing_seeds(groups)
    values = [row.values for row in rows]
    if not any(row[_HARDLY] for row in values):
        values = [{key: row[key] for key in row if key != _HARDLY} for row in values]
    notes += _listed(groups, lambda cell: cell.hardly_learned, "* {}: {}")
    texts, lines = [row.texts for row in rows], "\n".join(notes).split("\n")
    printed = formats.Table(texts, _WORDS, _NAMES, title, lines)
    return Results(values, printed)


def _missing_seeds(groups: Sequence[SeedGroup]) -> Iterator[str]:
    """Yield which cells lack seeds that another one of their task has, a line for equal seeds."""
    alike = grouped(groups, lambda cell: cell.where)
    seeds = {where: {run.seed for cell in alike[where] for run in cell.runs} for where in alike}

    def lacking(cell: SeedGroup) -> str:
        done = {run.seed for run in cell.runs if run.status == "finished"}
        return ", ".join(map(str, sorted(seeds[cell.where] - done)))

    return _listed(groups, lacking, "missing seeds: {} of {}")


def _listed(
    groups: Sequence[SeedGroup], text_of: Callable[[SeedGroup], str], form: str
) -> Iterator[str]:
    """Yield each text of cells in a form, with the names of the cells that it is of."""
    cells = grouped(groups, text_of)
    for text in filter(None, cells):
        names = [" ".join(filter(None, (*cell.names, cell.differs))) for cell in cells[text]]
        more = [f"and {len(names) - _NAMED} more"] if len(names) > _NAMED else []
        yield form.format(text, "; ".join([*names[:_NAMED], *more]))


def spread(values: Sequence[float]) -> str:
    """Return `mean ± std` (sample standard deviation, ddof 1); one value has no deviation."""
    if not values:
        return "-"
    mean, std = mean_std(values)
    return f"{mean:.2f}" if std is None else f"{mean:.2f} ± {std:.2f}"


def _named(cell: SeedGroup) -> _Row:
    row = _Row()
    for name, option in zip(NAMES, cell.names, strict=True):
        row.add(name, option)
    row.add("differs", cell.differs)
    row.values[_HARDLY] = cell.hardly_learned
    return row


def _row(cell: SeedGroup) -> _Row:
    row, tests = _named(cell), list(cell.scores("test").values())
    row.add("metric", cell.runs[0].metric)
    row.add_scores("dev", list(cell.scores("dev").values()))
    row.add_scores("test", tests, marked=True)
    row.add("n", len(tests))
    failed = sum(run.status != "finished" for run in cell.runs)
    row.add("failed", failed, "{}" if failed else "")
    learned = sorted({run.learned_parameters["total"] for run in cell.runs})
    least = f"{learned[0]:,} to " if len(learned) > 1 else ""
    row.add("learned", learned[-1], least + "{:,}")
    return row


def _add_best(row: _Row, cell: SeedGroup, best: int) -> None:
    """Add the columns of `best=`; the scores stand in the order of seeds.

    The mean of the best is unknown if there are fewer scores.
    """
    tests = list(cell.scores("test").values())
    mean = mean_of_best(tests, keep=best) if len(tests) >= best else None
    row.add(f"best_{best}", mean, "{:.2f}")
    row.add("min", min(tests, default=None), "{:.2f}")
    near = sum(max(tests) - score <= 2.0 for score in tests) if tests else None
    row.add("within_2", near, more=f" of {len(tests)}")
    row.add("tests", tests, " ".join(f"{score:.2f}" for score in tests) or "-")


# What stands for a document: its size, and how near it is to the whole document in view.

_DOCUMENT = (
    "saved: tokens of the document that need no cache; size: bytes of what is learned instead;\n"
    "kl: to the whole document in view, in nats a token; kept: the part of the kl without the\n"
    "document (method=manual_prompt) that is gone"
)


def _add_documents(rows: Sequence[_Row], groups: Sequence[SeedGroup]) -> None:
    """Add the columns of a document; they are unknown of a run without one."""
    pairs: list[tuple[float | None, Any]] = []  # the mean on test, and the document
    for cell in groups:
        kls = [run.metrics.get("test", {}).get("kl") for run in cell.runs]
        scores = [kl for kl in kls if kl is not None]
        mean = statistics.fmean(scores) if scores else None
        pairs.append((mean, cell.runs[0].manifest.get("document")))
    without = next((kl for kl, document in pairs if kl and document and not document["bytes"]), 0)
    for row, (kl, document) in zip(rows, pairs, strict=True):
        tokens = document["tokens"] if document else 0
        row.add("saved", document and tokens - document["vectors"], "{:,}", f" of {tokens:,}")
        row.add("size", document and document["bytes"], "{:,}")
        row.add("kl", kl, "{:.3f}")
        share = 100 * (1 - kl / without) if without and kl is not None else None
        row.add("kept", share, "{:.0f} %")


# The scores of each label, from the finished seeds of a cell.

_LABELS = (
    "precision, recall, f1: on test, mean ± sample standard deviation over seeds; count: test "
    "examples, or entities;\nread as: their predictions over all seeds, the most frequent others "
    "first"
)
_MOST_OTHERS = 3


def _label_rows(title: str, groups: Sequence[SeedGroup]) -> list[_Row]:
    """Return a row for each label of each cell."""
    rows = []
    for cell in groups:
        runs = [run.by_label for run in cell.runs if run.status == "finished" and run.by_label]
        for label in dict.fromkeys(label for run in runs for label in run["scores"]):
            seeds = [run["scores"][label] for run in runs if label in run["scores"]]
            read: Counter[str] = Counter()
            for run in runs:
                read.update(run.get("confusion", {}).get(label, {}))
            others = sorted(((-n, name) for name, n in read.items() if name != label))
            row = _named(cell)
            row.add("label", label)
            for metric in ("precision", "recall", "f1"):
                scores = [each[metric] for each in seeds]
                row.add_scores(metric, scores, marked=metric == "f1")
            row.add("count", seeds[0]["count"], "{:,}")
            row.add("n", len(seeds))
            confused = [f"{name or 'not read'} {-n:,}" for n, name in others[:_MOST_OTHERS]]
            confused += [f"{len(others) - _MOST_OTHERS} more"] * (len(others) > _MOST_OTHERS)
            row.add("read_as", dict(read), "", ", ".join(confused))
            rows.append(row)
    if not rows:
        raise UserError(
            f"report {title}: no run has scores of labels. Tasks with a label or tags have them."
        )
    return rows


# The test score of a vote of the seeds of a cell.
#
# Labels are combined by majority as in IDPG's bagging (5 seeds and two classes cannot tie), numbers
# (STS-B) by their mean as in its released code. A vote needs `predictions.jsonl` of the same test
# set from every seed.

FILE = "predictions.jsonl"
_NUMBERS = "pearson_spearman"


def voted(runs: Sequence[RunResult], folders: Mapping[str, Path]) -> float:
    """Return the vote's test score of finished runs, in the metric that selected them.

    The lowest seed of a cell breaks a tie; `folders` are by run id.
    """
    done = {run.run_id: run for run in runs if run.status == "finished"}
    seeds = sorted(done.values(), key=lambda run: run.seed)
    if len(seeds) < 2:
        raise UserError("fewer than two seeds finished")
    rows = []
    for run in seeds:
        folder = folders[run.run_id]
        examples = RunFolder(folder, run).rows(FILE)
        if examples is None:
            raise UserError(f"{folder.name} has no {FILE}")
        if not all({"id", "target", "prediction"} <= row.keys() for row in examples):
            raise UserError(f"{folder.name}: {FILE} is damaged")
        rows.append(examples)
    target = itemgetter("id", "target")
    for run, examples in zip(seeds, rows, strict=True):
        if list(map(target, examples)) != list(map(target, rows[0])):
            raise UserError(f"seeds {seeds[0].seed} and {run.seed} have different test sets")
    golds = [row["target"] for row in rows[0]]
    by_seed = [[row["prediction"] for row in examples] for examples in rows]
    if seeds[0].metric == "accuracy" and all(isinstance(gold, list) for gold in golds):
        golds, *by_seed = ([*chain(*sentences)] for sentences in (golds, *by_seed))  # words vote
    by_example, every = list(zip(*by_seed, strict=True)), [*golds, *chain(*by_seed)]
    metric = seeds[0].metric
    if metric == _NUMBERS and all(map(is_number, every)):
        return pearson_and_spearman([statistics.fmean(n) for n in by_example], golds)
    # Labels alone decide these metrics; MultiRC's metrics group labels by question.
    positive = seeds[0].config.get("task", {}).get("positive")
    computed = get_args(Metric) if positive is not None else ("accuracy", "macro_f1")
    if metric not in computed or not all(isinstance(label, str | int) for label in every):
        name = f"{metric} of {seeds[0].names['task']}"
        raise UserError(f"{name} is not computed from one label per example")
    majority = [Counter(labels).most_common(1)[0][0] for labels in by_example]
    return score(metric, majority, golds, positive=positive)  # type: ignore[arg-type]
