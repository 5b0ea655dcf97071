"""What the results of two runs say of themselves, fact by fact."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ptrun.config.flat import flat
from ptrun.run.find import Run

_SEEDS = ("seed", "data_seed")
_MACHINE = ("device", "name", "threads", "precision", "ranks", "model_parallel", "token_budget")
_SELECTION = ("steps", "skipped_steps", "best_step", "candidates")
_START = ("start", "start_takes", "started_from", "task_version")
_PLACES = ("path", "ids")
"""Where a thing was found, and what a hash says shorter."""


@dataclass(frozen=True)
class Fact:
    """One thing that two runs say differently; None where one does not say it."""

    section: str
    key: str
    old: Any
    new: Any


def differing(a: Run, b: Run) -> list[Fact]:
    """Return what differs, section by section; what is measured (metrics) is not among it."""
    own, other = sections(a), sections(b)
    return [
        Fact(name, key, own[name].get(key), other[name].get(key))
        for name in own
        for key in dict.fromkeys([*own[name], *other[name]])
        if own[name].get(key) != other[name].get(key)
    ]


def sections(run: Run) -> dict[str, dict[str, Any]]:
    """Return what a result says besides its numbers, by path, in the order it is told."""
    config = flat(run.result.config)
    seeds = {key: config.pop(key) for key in _SEEDS if key in config}
    config.pop("data", None)  # told with the data
    manifest = run.result.manifest
    code = {"commit": manifest.get("git_commit"), "uncommitted changes": manifest.get("git_dirty")}
    return {
        "names": dict(run.result.names),
        "configuration": config,
        "seeds": seeds,
        "data": _known(run.facts("data")),
        "backbone": _known(run.facts("backbone")),
        "start": flat(_picked(manifest, _START)),
        "versions": run.facts("versions"),
        "code": code,
        "machine": _picked(manifest, _MACHINE),
        "learned": dict(run.result.learned_parameters),
        "selection": {**_picked(manifest, _SELECTION), **_parts(run)},
        "outcome": {"status": run.result.status, "reason": run.result.reason},
    }


def same_configuration(a: Run, b: Run) -> bool:
    """Return whether two runs were asked for the same: then their numbers should be equal."""
    own, other = a.result.config, b.result.config
    return a.result.run_id == b.result.run_id or (bool(own) and own == other)


def _picked(manifest: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: manifest.get(key) for key in keys}


def _known(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {key: v for key, v in flat(facts).items() if key.split(".")[-1] not in _PLACES}


def _parts(run: Run) -> dict[str, Any]:
    """Return the selected step of each part of a run that has several."""
    parts = {name: own for name, own in run.facts("parts").items() if isinstance(own, Mapping)}
    return {f"best_step of {name}": own.get("best_step") for name, own in parts.items()}
