"""The rows of the ledger: every printed number beside our runs, with a verdict or a reason.

The runs of a cell lie in `<outputs>/<paper>/<table>/<cell>/`. Runs of searched hyper-parameters
lie there too; dev selects among them. Only runs that have what the cell requests count; the others
are its variants, which are listed and never compared.
"""

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from ptrun.config import identity, schema
from ptrun.config.compose import compose_run
from ptrun.config.identity import flat
from ptrun.config.paths import conf_dir, package_dirs, user_dirs
from ptrun.errors import UserError
from ptrun.files import read_json, write_text
from ptrun.folder import request, result
from ptrun.papers.experiment import GRID, Cell, Experiment, load
from ptrun.papers.ours import (
    CHOSEN,
    PROTOCOLS,
    ByProtocol,
    Interval,
    Ours,
    Verdict,
    by_protocol,
    interval,
    mean,
    number,
    verdict,
)
from ptrun.types import RunResult, __version__

_LOG = logging.getLogger(__name__)


# What a cell of a table requests, and in what a run of its folder differs from that.
#
# A run counts for a cell only if its recorded content equals what the cell's overrides compose to.
# Composing takes a tenth of a second, so the compositions are kept in `<outputs>/.requested.json`.

_FILE, _FORM = ".requested.json", 2  # another form makes kept compositions invalid
_BY_RUN = ("seed", "data", "backbone.weights", "masks", "forgetting")  # files, draws, a measurement
_FILES = ("method.glove",)  # recorded by their content
_MADE = ("pretrained", "run")  # starts that are recorded with the id of another run


@dataclass(frozen=True)
class Request:
    """What a cell's overrides compose to.

    Args:
        names: the option of each group.
        settings: the recorded settings by dotted key.
        pretraining: the changes of the prerequisite run.
        parameters: the backbone's published size, if it is known.
    """

    names: Mapping[str, str]
    settings: Mapping[str, Any]
    pretraining: Mapping[str, Any]
    parameters: int | None


def compose(overrides: list[str]) -> Request:
    """Return what overrides request, in the form that a run records."""
    from ptrun.runs.plan import with_readout  # imports torch
    from ptrun.start.spec import recorded

    composition = with_readout(compose_run(tuple(overrides)))
    config = composition.config
    typed = config["hardware"]
    hardware = {key: typed[key] for key in ("precision", "fp16_scaling") if typed.get(key)}
    hardware |= identity.quantized(typed)
    start = recorded(config["start"])
    content = identity.affecting({**config, "hardware": hardware, "start": start}, "", "")
    settings = json.loads(json.dumps(content))  # as in a result: keys are text
    size = config["backbone"].get("parameters")
    return Request(composition.names, flat(settings), flat(config["pretraining"]), size)


class Requests:
    """The requests of cells, kept beside the runs in `outputs`."""

    def __init__(self, outputs: Path) -> None:
        self.file, self.new = outputs / _FILE, False
        folders = [conf_dir(), *user_dirs(), *package_dirs()]
        files = sorted(file for folder in folders for file in folder.rglob("*.yaml"))
        facts = [(str(f), f.stat().st_mtime_ns, f.stat().st_size) for f in files]
        text = f"{__version__} {_FORM} {facts}"
        self.stamp = hashlib.sha256(text.encode()).hexdigest()[:16]  # of all files of options
        try:
            content = read_json(self.file)
            self.kept = dict(content["cells"]) if content["stamp"] == self.stamp else {}
        except (OSError, ValueError, TypeError, KeyError):
            self.kept = {}

    def of(self, experiment: Experiment, cell: Cell) -> Request:
        """Return what a cell requests."""
        overrides = experiment.overrides(cell)
        key = " ".join(overrides)
        if key not in self.kept:
            self.kept[key] = asdict(compose(overrides))
            self.new = True
        return Request(**self.kept[key])

    def save(self) -> None:
        """Write new requests; where that is not possible they are composed again."""
        try:
            if self.new:
                write_text(self.file, json.dumps({"stamp": self.stamp, "cells": self.kept}))
        except OSError as error:
            _LOG.info("%s: not written (%s)", self.file, error.strerror)


def differences(
    requested: Request, run: RunResult, folder: Path, grid: Mapping[str, list[Any]]
) -> list[str]:
    """Return `key=value` for each setting in which a run differs from a request; empty if none.

    Each of the searched values in `grid` is requested.
    """
    settings = flat(run.config)
    keys = [
        key
        for key in {**requested.settings, **settings}
        if not _free(key, settings, grid)
        and not _alike(requested.settings.get(key), settings.get(key))
    ]
    # A group of another option is named alone, without its settings.
    groups = {key.split(".")[0] for key in keys if "." in key}
    named = [
        group
        for group in schema.GROUPS
        if group in groups and run.names.get(group) != requested.names[group]
    ]
    texts = [f"{group}={run.names.get(group)}" for group in named]
    texts += [f"{key}={settings.get(key)}" for key in keys if key.split(".")[0] not in named]
    size = run.manifest.get("backbone", {}).get("parameters")
    if size and requested.parameters not in (None, size):  # of a local folder
        texts.append(f"a backbone of {size:,} parameters")
    return texts + _pretraining(requested, settings, folder)


def _free(key: str, settings: Mapping[str, Any], grid: Mapping[str, list[Any]]) -> bool:
    """Return whether any value of a key is requested: both protocols are columns of a table."""
    if key in grid:
        return settings.get(key) in grid[key]
    if key in _FILES:
        return bool(settings.get(key))
    return key in _BY_RUN or key.startswith("protocol.")


def _alike(requested: Any, recorded: Any) -> bool:
    """Return whether two values are equal; of another run or a file only the kind is known."""
    if requested == recorded:
        return True
    texts = [str(value).partition(":")[0] for value in (requested, recorded)]
    return texts[0] == texts[1] in _MADE or str(requested)[:1] == str(recorded)[:1] == "@"


def _pretraining(requested: Request, settings: Mapping[str, Any], folder: Path) -> list[str]:
    """Return the settings in which the prerequisite run differs."""
    if not str(settings.get("start")).startswith("pretrained"):
        return []
    try:
        recorded = request.read(folder)
    except UserError:
        return [f"{request.FILE} is missing or damaged"]
    changes = flat(recorded.config.get("pretraining") or {})
    return [
        f"pretraining.{key}={changes.get(key)}"
        for key in {**requested.pretraining, **changes}
        if requested.pretraining.get(key) != changes.get(key)
    ]


# The runs of a cell's folder, divided by whether the cell requests them.

CellRuns = tuple[Sequence[RunResult], Mapping[str, Sequence[RunResult]]]
"""The runs that a cell requests, and the other runs of its folder by what differs."""


def cell_runs(experiment: Experiment, cell: Cell, outputs: Path, requests: Requests) -> CellRuns:
    """Return the runs of a cell, from the folder of the experiment that runs it."""
    name, key = experiment.home(cell)
    home = experiment if name == experiment.name else load(name)
    folder = outputs.joinpath(*home.folder, key)
    folders = result.run_folders(folder) if folder.is_dir() else []
    if not folders:
        return [], {}
    cell = next(other for other in home.cells if other.key == key)
    asked = {name: requests.of(home.under(name), cell) for name in PROTOCOLS}
    grid = home.searched(cell)
    runs: list[RunResult] = []
    variants: dict[str, list[RunResult]] = {}
    for folder in folders:
        try:
            run = result.read(folder)
        except UserError as error:
            _LOG.warning("not counted: %s", error)
            continue
        if run is None:
            continue
        requested = asked[run.names.get("protocol", PROTOCOLS[0])]
        if differs := differences(requested, run, folder, grid):
            variants.setdefault(", ".join(differs), []).append(run)
        else:
            runs.append(run)
    return runs, variants


@dataclass(frozen=True)
class LedgerRow:
    """One printed number and ours.

    Args:
        experiment, cell: the printed number.
        paper, honest: our runs under each protocol, or None.
        gap: the difference under the paper's protocol, else under the honest one.
        verdict: `within`, `above`, `below`, `not final`, `not comparable` or `not run`.
        why: the reason of the last three; for a cell that can be run, its command.
        variants: the reported metric by seed of finished runs that do not count, by the settings
            in which they differ, such as `backbone=pocket_bert`.
    """

    experiment: Experiment
    cell: Cell
    paper: Ours | None
    honest: Ours | None
    gap: Interval | None
    verdict: Verdict
    why: str | None
    variants: Mapping[str, Mapping[int, float]] = field(default_factory=dict)

    @property
    def runs(self) -> ByProtocol:
        """Our runs by protocol."""
        return {"paper": self.paper, "honest": self.honest}

    @property
    def ours(self) -> Ours | None:
        """Our runs under the paper's protocol, else under the honest one."""
        return self.paper or self.honest

    @property
    def command(self) -> str | None:
        """The command that runs the cell, if it was not run and can be."""
        can_run = self.verdict == "not run" and self.experiment.reason(self.cell) is None
        return self.why if can_run else None


def rows(experiment: Experiment, outputs: Path) -> list[LedgerRow]:
    """Return a row for every printed number of an experiment."""
    cells, requests = experiment.cells, Requests(outputs)
    by_key = {cell.key: cell for cell in cells}  # several metrics share the runs of a key
    runs = {key: cell_runs(experiment, cell, outputs, requests) for key, cell in by_key.items()}
    requests.save()
    protocols = [by_protocol(experiment, cell, runs[cell.key][0]) for cell in cells]
    elsewhere = _means_elsewhere(experiment, outputs)
    return [
        _row(
            experiment,
            cell,
            elsewhere.get((*experiment.home(cell), cell.metric))
            or _own_or_mean(experiment, index, protocols),
            runs[cell.key],
        )
        for index, cell in enumerate(cells)
    ]


def _means_elsewhere(
    experiment: Experiment, outputs: Path
) -> dict[tuple[str, str, str], ByProtocol]:
    """Return the means of other tables that a cell repeats, by table, key and metric."""
    homes = {experiment.home(cell) for cell in experiment.cells}
    means: dict[tuple[str, str, str], ByProtocol] = {}
    for name in {name for name, _ in homes} - {experiment.name}:
        other = load(name)
        if any(other.mean_over(cell) and (name, cell.key) in homes for cell in other.cells):
            for row in rows(other, outputs):
                if other.mean_over(row.cell):
                    means[name, row.cell.key, row.cell.metric] = row.runs
    return means


def _own_or_mean(experiment: Experiment, index: int, protocols: Sequence[ByProtocol]) -> ByProtocol:
    """Return the runs of a cell, or the mean of other cells."""
    cell = experiment.cells[index]
    axis = experiment.mean_over(cell)
    if axis is None or axis == GRID:
        return protocols[index]
    rest = {key: place for key, place in cell.at.items() if key != axis}
    parts = [
        i
        for i, part in enumerate(experiment.cells)
        if experiment.mean_over(part) in (None, GRID) and rest.items() <= part.at.items()
    ]
    places = [experiment.cells[i].at[axis] for i in parts]
    ddof = experiment.ddof
    return {p: mean([protocols[i][p] for i in parts], places, ddof) for p in PROTOCOLS}


def _row(experiment: Experiment, cell: Cell, ours: ByProtocol, ran: CellRuns) -> LedgerRow:
    # The verdict, with its reason or the command that runs the cell.
    best = ours["paper"] or ours["honest"]
    gap = _gap(experiment, cell, best) if best and not experiment.scale else None
    judged: Verdict
    why: str | None
    if best and gap and best.searched < best.planned:
        so_far = f"{best.searched} of {best.planned} configurations"
        judged, why = "not final", f"{verdict(gap)} with {so_far}; dev selects among all"
    elif best:
        judged = verdict(gap)
        why = None if gap else _incomparable(experiment, cell, best)
    elif failed := [run for run in ran[0] if run.status != "finished"]:
        judged, why = "not comparable", f"all {len(failed)} runs failed: {failed[0].reason}"
    else:
        home, key = experiment.home(cell)
        scale = f" +scale={experiment.scale}" if experiment.scale else ""
        command = f"ptrun experiment={home}{scale} cell={key}"
        judged, why = "not run", experiment.reason(cell) or command

    variants = {}
    for differs, others in ran[1].items():
        metric = experiment.metrics.get(cell.metric)
        scores = {run.seed: number(run, metric or run.metric) for run in others}
        variants[differs] = {seed: score for seed, score in scores.items() if score is not None}
    return LedgerRow(experiment, cell, ours["paper"], ours["honest"], gap, judged, why, variants)


def _gap(experiment: Experiment, cell: Cell, ours: Ours) -> Interval | None:
    seeds, scores = len(experiment.seeds), list(ours.scores.values())
    std = experiment.sample_std(cell)
    if cell.number is None or (experiment.statistic in CHOSEN and len(scores) != seeds):
        return None
    unit = 10.0 ** Decimal(repr(cell.value)).as_tuple().exponent  # type: ignore[operator]
    return interval(scores, experiment.statistic, cell.number, std, seeds, unit)


def _incomparable(experiment: Experiment, cell: Cell, ours: Ours) -> str:
    if experiment.scale:
        return "at pocket scale: other models, other data"
    if cell.number is None:
        return "the paper plots this point without printing its number"
    if len(ours.scores) == 1:
        return "1 seed: its spread is unknown"
    seeds = len(experiment.seeds)
    return f"{len(ours.scores)} seeds instead of {seeds}: the best and worst depend on the number"
