"""A table of results: mean, standard deviation and number of seeds for each cell.

ptrun report outputs
ptrun report outputs --over readout.pattern    # mean and std over patterns, and the best on dev
ptrun report outputs --best 3                 # DPT's rule: the mean of the best 3 of 10 seeds
ptrun report outputs --vote                   # and the score of the seeds' majority
ptrun report outputs --labels                 # precision, recall and F1 of each label
"""

import io
import logging
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from ptrun.errors import UserError
from ptrun.folder import result
from ptrun.folder.digest import is_number
from ptrun.folder.find import RunFolder
from ptrun.folder.scan import unfinished
from ptrun.ledger import formats
from ptrun.ledger.cells import (
    DOCUMENT,
    NAMES,
    Merged,
    SeedGroup,
    best_on_dev,
    cells,
    grouped,
    labels_of,
    majority_vote,
    mean_of_best,
    mean_std,
    mean_vote,
    merged,
    near_best,
    of_documents,
)
from ptrun.metrics import Metric, pearson_and_spearman, score
from ptrun.types import RunResult

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

_LOG = logging.getLogger(__name__)


# A table of results: `ptrun report` prints it, `ptrun.report` returns it.

_FIRST = ("task", "method", "differs in", "label")
"""The columns that name a row; the others of the left are said once if they are equal."""
_UNNAMED = (*_FIRST, "backbone", "setting", "protocol", "metric")
_LEFT = (*_UNNAMED, "read as")
_UNLIMITED = 10_000  # columns of a terminal
_MANY = 500  # rows above which the table is plain lines
_NAMED = 3  # cells that lack a seed
_FOLDED = ("best on dev", "tests by seed")


@dataclass(frozen=True)
class Results:
    """A table of results; iterating yields its rows as dicts.

    It prints in the width of the terminal, and a notebook shows it as HTML.

    Args:
        title: the folder of the results.
        rows: a dict of plain values for each cell. `dev` and `test` are means over seeds, `dev_std`
            and `test_std` sample standard deviations (None for one seed), `n` the number of seeds.
        texts: the same rows as printed text, by column.
        notes: lines below the table.
    """

    title: str
    rows: list[dict[str, Any]]
    texts: list[dict[str, str]]
    notes: list[str]

    @property
    def columns(self) -> list[str]:
        """The keys of a row."""
        return list(self.rows[0]) if self.rows else []

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
        Console(file=out, width=width, color_system=None).print(self)
        return out.getvalue().rstrip("\n")

    __repr__ = __str__

    def __rich_console__(
        self, console: "Console", options: "ConsoleOptions"
    ) -> "Iterator[RenderableType]":
        """Yield the table in a form that fits the width: whole, without equal columns, or stacked.

        Task and method are never cut.
        """
        from rich.measure import Measurement

        # What all rows have in common is said once, where the whole table is too wide.
        equal = {}
        for name in self._printed.columns:
            values = {texts[name] for texts in self.texts}
            unsaid = values == {""} and name in ("differs in", "failed")
            if unsaid or (len(values) == 1 and name in _LEFT and name not in _FIRST):
                equal[name] = values.pop()

        if len(self.texts) > _MANY:
            yield from self._lines(equal, options.max_width) or self._stacked(equal)
            return
        unlimited = options.update(max_width=_UNLIMITED)
        for said in ({}, equal):
            printed = self._table(said)
            if Measurement.get(console, unlimited, printed).minimum <= options.max_width:
                yield printed
                return
        yield from self._stacked(equal)

    def to_pandas(self) -> Any:
        """Return the rows as a `pandas.DataFrame`.

        Raises:
            UserError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise UserError("to_pandas needs pandas: type pip install pandas.") from error
        return pandas.DataFrame(self.rows, columns=self.columns)

    def csv(self, *, raw: bool = False) -> str:
        """Return the rows as CSV, with a header; an empty cell is an unknown value.

        A text that a spreadsheet would run as a formula begins with an apostrophe, unless `raw`.
        """
        return formats.to_csv(self.rows, raw=raw)

    def markdown(self) -> str:
        """Return the printed columns and the notes as Markdown."""
        return formats.markdown(self._printed) + "\n"

    def _repr_html_(self) -> str:
        return formats.html(self._printed)

    @property
    def _printed(self) -> formats.Table:
        return formats.Table(self.texts, _LEFT, self.title, self.notes)

    def _table(self, said: Mapping[str, str]) -> "RenderableType":
        """Return the table without the columns that are said in its title."""
        from rich.markup import escape

        rows = [{n: text for n, text in texts.items() if n not in said} for texts in self.texts]
        numbers = [name for name in self._printed.columns if name not in (*_LEFT, *_FOLDED)]
        printed = formats.terminal(formats.Table(rows, _LEFT), unbroken=numbers)
        printed.title, printed.title_justify = escape("\n".join([self.title, *_said(said)])), "left"
        printed.caption, printed.caption_justify = escape("\n".join(self.notes)), "left"
        return printed

    def _lines(self, said: Mapping[str, str], most: int) -> "list[RenderableType]":
        """Return the table as lines of text; none if they are longer than `most`.

        The library's tables take milliseconds a row.
        """
        from rich.cells import cell_len, set_cell_size
        from rich.segment import Segment

        names = [name for name in self.texts[0] if name not in said]
        rows = [dict(zip(names, names, strict=True)), *self.texts]
        widths = {name: max(cell_len(row[name]) for row in rows) for name in names}
        if sum(widths.values()) + 2 * len(names) > most:
            return []
        lines = [self.title, *_said(said), ""]
        for row in rows:
            cells = (set_cell_size(row[name], width) for name, width in widths.items())
            lines.append("  ".join(cells).rstrip())
        return [Segment(f"{line}\n") for line in [*lines, "", *self.notes]]  # type: ignore[misc]

    def _stacked(self, said: Mapping[str, str]) -> "Iterator[RenderableType]":
        """Yield two lines for each row: its names, then its numbers."""
        from rich.padding import Padding
        from rich.text import Text

        yield Text("\n".join([self.title, *_said(said)]), style="italic", overflow="fold")
        for texts in self.texts:
            left = [texts[n] for n in _UNNAMED if n in texts and n not in said and texts[n]]
            yield Text(" · ".join(left), style="bold", overflow="fold")
            named = {n: v for n, v in texts.items() if n not in (*_UNNAMED, *said) and v}
            numbers = [f"{n} {v}" for n, v in named.items()]
            yield Padding(Text(" · ".join(numbers), overflow="fold"), (0, 0, 0, 4))
        yield Text("\n".join(self.notes), style="dim", overflow="fold")


def _said(equal: Mapping[str, str]) -> list[str]:
    """Return a line with what all rows have in common."""
    parts = [f"{name} {value}" for name, value in equal.items() if value]
    return [" · ".join(parts)] if parts else []


_Row = tuple[dict[str, Any], dict[str, str]]
"""A row as plain values and as text."""
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
    _SEEDS + "\nbest {keep}: the mean of the {keep} highest test scores (DPT); optimistic, because "
    "test selects;\nwithin 2: the number of scores at most 2 points below the highest"
)


def table(
    root: Path,
    over: str | None = None,
    *,
    best: int | None = None,
    vote: bool = False,
    labels: bool = False,
) -> Results:
    """Return the table of all runs below a folder.

    Args:
        root: the folder.
        over: a key whose values are merged into one row.
        best: add the mean of this many of the highest test scores, the minimum, the number near
            the highest, and the scores of all seeds; not with `over`.
        vote: add the score of the seeds' vote; not with `over`.
        labels: a row for each label or type of entity, with its scores on test.

    Raises:
        UserError: the folder is missing or has no result, or no result has the key.
    """
    if not root.is_dir():
        raise UserError(f"report {root}: no such folder; results are usually below `outputs`.")
    runs, damaged = result.read_all(root)
    if not runs:
        told = [f"report {root}: no result.json or failure.json below it.", *damaged]
        raise UserError("\n".join(told))
    for message in damaged:
        _LOG.warning("not counted: %s", message)
    shown = of_runs(runs, str(root), over, best=best, vote=vote, labels=labels)
    if over is None and best is None and not vote and not labels:
        counts = Counter(run.state.kind for run in unfinished(root))
        left = [f"{counts[kind]} {kind}" for kind in ("running", "interrupted") if counts[kind]]
        if left:
            shown.notes.insert(1, f"not in the table: {', '.join(left)} (ptrun status {root})")
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
    """Return the table of results by run folder; other arguments as in `table`.

    Raises:
        UserError: there is no result, or an option is wrong.
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
    results = [runs[folder] for folder in folders.values()]

    # A row for all values of a key.
    if over is not None:
        rows = []
        for row in merged(results, over):
            groups = list(row.cells.values())
            devs, tests = _means(groups, "dev"), _means(groups, "test")
            rows.append(_joined(_columns(row, groups, devs, tests), _best(row)))
        return _results(title, rows, _OVER.format(key=over))

    # A row for each label of each cell, or for each cell with the columns that are asked for.
    groups = cells(results)
    if labels:
        return _results(title, _label_rows(title, groups), _LABELS)
    if best is not None:
        rows = [_joined(_row(cell), _seeds(cell, best)) for cell in groups]
        return _results(title, rows, _BEST.format(keep=best))
    if vote:
        return _voted(title, groups, {runs[folder].run_id: folder for folder in folders.values()})
    rows = [_row(cell) for cell in groups]
    if any("document" in run.manifest for run in results):
        rows = [_joined(*both) for both in zip(rows, of_documents(groups), strict=True)]
        return _results(title, rows, "\n".join([_SEEDS, DOCUMENT, *_missing_seeds(groups)]))
    return _results(title, rows, "\n".join([_SEEDS, *_missing_seeds(groups)]))


def _missing_seeds(groups: Sequence[SeedGroup]) -> Iterator[str]:
    """Yield which cells lack seeds that another one of their task has, a line for equal seeds."""
    seeds = {
        where: sorted({run.seed for cell in alike for run in cell.runs})
        for where, alike in grouped(groups, _where).items()
    }
    cells: dict[str, list[str]] = {}
    for cell in groups:
        done = {run.seed for run in cell.runs if run.status == "finished"}
        if lacking := [str(seed) for seed in seeds[_where(cell)] if seed not in done]:
            name = " ".join(part for part in (*cell.names, cell.differs) if part)
            cells.setdefault(", ".join(lacking), []).append(name)
    for lacked, names in cells.items():
        more = f"; and of {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        yield f"missing seeds: {lacked} of {'; '.join(names[:_NAMED])}{more}"


def _where(cell: SeedGroup) -> tuple[str, ...]:
    """Return task, setting and protocol of a cell."""
    names = dict(zip(NAMES, cell.names, strict=True))
    return names["task"], names["setting"], names["protocol"]


def spread(values: Sequence[float]) -> str:
    """Return `mean ± std` (sample standard deviation, ddof 1); one value has no deviation."""
    if not values:
        return "-"
    mean, std = mean_std(values).mean, mean_std(values).std
    return f"{mean:.2f}" if std is None else f"{mean:.2f} ± {std:.2f}"


def _voted(title: str, groups: Sequence[SeedGroup], folders: Mapping[str, Path]) -> Results:
    """Return the table with votes; its notes say why some cells have none."""
    rows, reasons = [], []
    for cell in groups:
        score, text = None, "-"
        try:
            score = vote(cell.runs, folders)
            text = f"{score:.2f}"
        except UserError as error:
            reasons.append(f"no vote: {error}")
        rows.append(_joined(_row(cell), ({"vote": score}, {"vote": text})))
    return _results(title, rows, "\n".join([_SEEDS, _VOTE, *dict.fromkeys(reasons)]))


def _results(title: str, rows: Sequence[_Row], notes: str) -> Results:
    return Results(
        title, [values for values, _ in rows], [text for _, text in rows], notes.split("\n")
    )


def _joined(row: _Row, more: _Row) -> _Row:
    return {**row[0], **more[0]}, {**row[1], **more[1]}


def _row(cell: SeedGroup) -> _Row:
    return _columns(cell, [cell], cell.values("dev"), cell.values("test"))


def _columns(
    row: SeedGroup | Merged,
    groups: Sequence[SeedGroup],
    devs: Sequence[float],
    tests: Sequence[float],
) -> _Row:
    learned = {run.learned_parameters["total"] for cell in groups for run in cell.runs}
    names, metric = dict(zip(NAMES, row.names, strict=True)), groups[0].runs[0].metric
    failed = sum(cell.failed for cell in groups)
    values: dict[str, Any] = {**names, "differs": row.differs, "metric": metric}
    values |= {**_mean("dev", devs), **_mean("test", tests), "n": len(tests), "failed": failed}
    texts = {**names, "differs in": row.differs, "metric": metric}
    texts |= {"dev": spread(devs), "test": spread(tests), "n": str(len(tests))}
    texts |= {"failed": str(failed or "")}
    counts = " to ".join(f"{count:,}" for count in sorted({min(learned), max(learned)}))
    return {**values, "learned": max(learned)}, {**texts, "learned": counts}


def _mean(name: str, scores: Sequence[float]) -> dict[str, float | None]:
    """Return mean and standard deviation; None where there is none."""
    if not scores:
        return {name: None, f"{name}_std": None}
    average = mean_std(scores)
    return {name: average.mean, f"{name}_std": average.std}


def _means(groups: Sequence[SeedGroup], split: str) -> list[float]:
    """Return the mean of each cell that has scores on a split."""
    return [mean_std(values).mean for cell in groups if (values := cell.values(split))]


def _seeds(cell: SeedGroup, best: int) -> _Row:
    """Return the columns of `best=`; the scores stand in the order of seeds.

    The mean of the best is unknown if there are fewer scores.
    """
    runs = sorted(cell.runs, key=lambda run: run.seed)
    tests = replace(cell, runs=runs).values("test")
    mean = mean_of_best(tests, keep=best) if len(tests) >= best else None
    near = near_best(tests) if tests else None
    least = min(tests, default=None)
    values = {f"best_{best}": mean, "min": least, "within_2": near, "tests": tests}
    texts = {
        f"best {best}": "-" if mean is None else f"{mean:.2f}",
        "min": "-" if least is None else f"{least:.2f}",
        "within 2": "-" if near is None else f"{near} of {len(tests)}",
        "tests by seed": " ".join(f"{score:.2f}" for score in tests) or "-",
    }
    return values, texts


def _best(row: Merged) -> _Row:
    """Return the test score of the best value on dev and that value; unknown without dev scores."""
    names = [name for name, cell in row.cells.items() if cell.values("dev")]
    if not names:
        return {"best_on_dev": None, "best_values": []}, {"best on dev": "-"}
    groups = [row.cells[name] for name in names]
    devs, tests = _means(groups, "dev"), _means(groups, "test")
    best = [name for name, dev in zip(names, devs, strict=True) if dev == max(devs)]
    score = best_on_dev(devs, tests)
    text = f"{score:.2f} ({', '.join(best)})"
    return {"best_on_dev": score, "best_values": best}, {"best on dev": text}


# The scores of each label, from the finished seeds of a cell.

_LABELS = (
    "precision, recall, f1: on test, mean ± sample standard deviation over seeds; count: test "
    "examples, or entities;\nread as: their predictions over all seeds, the most frequent others "
    "first"
)


def _label_rows(title: str, groups: Sequence[SeedGroup]) -> list[_Row]:
    """Return a row for each label of each cell."""
    rows = []
    for cell in groups:
        runs = [run.by_label for run in cell.runs if run.status == "finished" and run.by_label]
        names = dict(zip(NAMES, cell.names, strict=True))
        for name, label in labels_of(runs).items():
            values: dict[str, Any] = {**names, "differs": cell.differs, "label": name}
            texts = {**names, "differs in": cell.differs, "label": name}
            for metric, scores in label.scores.items():
                values |= _mean(metric, scores)
                texts[metric] = spread(scores)
            values |= {"count": label.count, "n": label.seeds, "read_as": dict(label.read_as)}
            texts |= {"count": f"{label.count:,}", "n": str(label.seeds)}
            rows.append((values, {**texts, "read as": label.confused}))
    if not rows:
        raise UserError(
            f"report {title}: no run has scores of labels. Tasks with a label or tags have them."
        )
    return rows


# The test score of a vote of the seeds of a cell.
#
# Labels are combined by majority as in IDPG's bagging, numbers (STS-B) by their mean as in its
# released code. A vote needs `predictions.jsonl` of the same test set from every seed.

FILE = "predictions.jsonl"
_NUMBERS = "pearson_spearman"


def vote(runs: Sequence[RunResult], folders: Mapping[str, Path]) -> float:
    """Return the vote's test score of finished runs, in the metric that selected them.

    Args:
        runs: the seeds of one cell, in any order; the lowest seed breaks a tie.
        folders: run folders by run id.

    Raises:
        UserError: why a vote is not possible.
    """
    done = {run.run_id: run for run in runs if run.status == "finished"}
    seeds = sorted(done.values(), key=lambda run: run.seed)
    if len(seeds) < 2:
        raise UserError("fewer than two seeds finished")
    rows = [_rows(RunFolder(folders[run.run_id], run)) for run in seeds]
    target = itemgetter("id", "target")
    for run, examples in zip(seeds, rows, strict=True):
        if list(map(target, examples)) != list(map(target, rows[0])):
            raise UserError(f"seeds {seeds[0].seed} and {run.seed} have different test sets")
    return _score(seeds[0], rows)


def _rows(run: RunFolder) -> list[dict[str, Any]]:
    rows = run.rows(FILE)
    if rows is None:
        raise UserError(f"{run.folder.name} has no {FILE}")
    if not all({"id", "target", "prediction"} <= row.keys() for row in rows):
        raise UserError(f"{run.folder.name}: {FILE} is damaged")
    return rows


def _score(run: RunResult, rows: Sequence[Sequence[Mapping[str, Any]]]) -> float:
    golds = [row["target"] for row in rows[0]]
    predictions = [[row["prediction"] for row in examples] for examples in rows]
    numbers = all(is_number(value) for values in (golds, *predictions) for value in values)
    if run.metric == _NUMBERS and numbers:
        return pearson_and_spearman(mean_vote(predictions), golds)
    positive = run.config.get("task", {}).get("positive")
    labels = all(isinstance(v, str | int) for values in (golds, *predictions) for v in values)
    # Labels alone decide these metrics; MultiRC's metrics group labels by question.
    computed = get_args(Metric) if positive is not None else ("accuracy", "macro_f1")
    if not labels or run.metric not in computed:
        name = f"{run.metric} of {run.names['task']}"
        raise UserError(f"{name} is not computed from one label per example")
    return score(run.metric, majority_vote(predictions), golds, positive=positive)  # type: ignore[arg-type]
