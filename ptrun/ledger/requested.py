"""What a cell of a table requests, and in what a run of its folder differs from that.

A run counts for a cell only if its recorded content equals what the cell's overrides compose to.
Composing takes a tenth of a second, so the compositions are kept in `<outputs>/.requested.json`.
"""

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ptrun import __version__
from ptrun.config import identity, schema
from ptrun.config.explain import composed
from ptrun.config.flat import flat
from ptrun.config.paths import conf_dir, package_dirs, user_dirs
from ptrun.errors import UserError
from ptrun.files import read_json, write_text
from ptrun.folder import request
from ptrun.ledger.experiment import Cell, Experiment
from ptrun.types import RunResult

_LOG = logging.getLogger(__name__)
_FILE = ".requested.json"
_BY_RUN = ("seed", "data", "backbone.weights")  # of data files and weights, wherever they are
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

    made = with_readout(composed(tuple(overrides)))
    hardware = {key: made.config["hardware"].get(key) for key in ("precision", "fp16_scaling")}
    own = {"hardware": {key: value for key, value in hardware.items() if value}}
    own["hardware"] |= identity.quantized(made.config["hardware"])
    content = identity.affecting({**made.config, **own}, "", "")
    recorded = json.loads(json.dumps(content))  # as in a result: keys are text
    size = made.config["backbone"].get("parameters")
    return Request(made.names, flat(recorded), flat(made.config["pretraining"]), size)


class Requests:
    """The requests of cells, kept beside the runs in `outputs`."""

    def __init__(self, outputs: Path) -> None:
        self.file = outputs / _FILE
        self.new = False

    def of(self, experiment: Experiment, cell: Cell) -> Request:
        """Return what a cell requests."""
        overrides = experiment.overrides(cell)
        key = hashlib.sha256(json.dumps(overrides).encode()).hexdigest()[:16]
        if key not in self._kept:
            self._kept[key] = asdict(compose(overrides))
            self.new = True
        return Request(**self._kept[key])

    def save(self) -> None:
        """Write new requests; where that is not possible they are composed again."""
        if not self.new:
            return
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            write_text(self.file, json.dumps({"stamp": self._stamp, "cells": self._kept}))
        except OSError as error:
            _LOG.info("%s: not written (%s)", self.file, error.strerror)

    @cached_property
    def _kept(self) -> dict[str, Any]:
        try:
            content = read_json(self.file)
            return dict(content["cells"]) if content["stamp"] == self._stamp else {}
        except (OSError, ValueError, TypeError, KeyError):
            return {}

    @cached_property
    def _stamp(self) -> str:
        """Return a hash that changes with any file of options."""
        folders = [conf_dir() / group for group in schema.GROUPS]
        added = [*user_dirs(), *package_dirs()]
        folders += [conf_dir(), *(own / group for own in added for group in schema.GROUPS)]
        files = sorted(file for folder in folders for file in folder.glob("*.yaml"))
        facts = [(str(f), f.stat().st_mtime_ns, f.stat().st_size) for f in files]
        return hashlib.sha256(f"{__version__} {facts}".encode()).hexdigest()[:16]


def differences(
    wanted: Request, run: RunResult, folder: Path, grid: Mapping[str, list[Any]]
) -> list[str]:
    """Return `key=value` for each setting in which a run differs from a request; empty if none.

    Args:
        wanted: what the cell requests.
        run: the run.
        folder: its folder.
        grid: the searched values by key; each of them is requested.
    """
    own = flat(run.config)
    keys = [key for key in {**wanted.settings, **own} if not _free(key, own, grid)]
    found = [key for key in keys if not _alike(wanted.settings.get(key), own.get(key))]
    named = [group for group in schema.GROUPS if any(k.startswith(f"{group}.") for k in found)]
    named = [group for group in named if run.names.get(group) != wanted.names[group]]
    texts = [f"{group}={run.names.get(group)}" for group in named]
    texts += [f"{key}={own.get(key)}" for key in found if key.split(".")[0] not in named]
    size = run.manifest.get("backbone", {}).get("parameters")
    if size and wanted.parameters not in (None, size):  # of a local folder
        texts.append(f"a backbone of {size:,} parameters")
    return texts + _pretraining(wanted, own, folder)


def _free(key: str, own: Mapping[str, Any], grid: Mapping[str, list[Any]]) -> bool:
    """Return whether any value of a key is requested: both protocols are columns of a table."""
    if key in grid:
        return own.get(key) in grid[key]
    if key in _FILES:
        return bool(own.get(key))
    return key in _BY_RUN or key.startswith("protocol.")


def _alike(wanted: Any, own: Any) -> bool:
    """Return whether two values are equal; of another run or a file only the kind is known."""
    if wanted == own:
        return True
    texts = [str(value).partition(":")[0] for value in (wanted, own)]
    return texts[0] == texts[1] in _MADE or str(wanted)[:1] == str(own)[:1] == "@"


def _pretraining(wanted: Request, own: Mapping[str, Any], folder: Path) -> list[str]:
    """Return the settings in which the prerequisite run differs."""
    if not str(own.get("start")).startswith("pretrained"):
        return []
    try:
        kept = request.read(folder)
    except UserError:
        kept = None
    if kept is None:
        return [f"{request.FILE} is missing or damaged"]
    found = flat(kept.config.get("pretraining") or {})
    keys = [k for k in {**wanted.pretraining, **found} if wanted.pretraining.get(k) != found.get(k)]
    return [f"pretraining.{key}={found.get(key)}" for key in keys]
