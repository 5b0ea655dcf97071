"""The recorded facts in which two runs differ, apart from their scores."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ptrun.config.flat import flat
from ptrun.folder.find import Run

_SEEDS = ("seed", "data_seed")
_MACHINE = (
    *("device", "name", "threads", "precision", "quantization", "ranks", "model_parallel"),
    *("token_budget", "population", "checkpointing"),
)
_SELECTION = ("steps", "skipped_steps", "best_step", "candidates")
_START = ("start", "start_takes", "started_from", "task_version")
_IGNORED = ("path", "ids")
"""Paths may differ between machines; a hash stands for the ids."""


@dataclass(frozen=True)
class Fact:
    """One recorded value that differs; None if a run does not record it."""

    section: str
    key: str
    old: Any
    new: Any


def differing(a: Run, b: Run) -> list[Fact]:
    """Return the differing facts, section by section, without metrics."""
    own, other = sections(a), sections(b)
    return [
        Fact(name, key, own[name].get(key), other[name].get(key))
        for name in own
        for key in dict.fromkeys([*own[name], *other[name]])
        if own[name].get(key) != other[name].get(key)
    ]


def sections(run: Run) -> dict[str, dict[str, Any]]:
    """Return the facts of a result without its metrics, by section and path, in printing order."""
    config = flat(run.result.config)
    seeds = {key: config.pop(key) for key in _SEEDS if key in config}
    config.pop("data", None)  # part of the data section
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
    """Return whether two runs have one configuration, so that their results should be equal."""
    own, other = a.result.config, b.result.config
    return a.result.run_id == b.result.run_id or (bool(own) and own == other)


def _picked(manifest: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: manifest.get(key) for key in keys}


def _known(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {key: v for key, v in flat(facts).items() if key.split(".")[-1] not in _IGNORED}


def _parts(run: Run) -> dict[str, Any]:
    """Return the selected step of each part of a run that has several."""
    parts = {name: own for name, own in run.facts("parts").items() if isinstance(own, Mapping)}
    return {f"best_step of {name}": own.get("best_step") for name, own in parts.items()}
