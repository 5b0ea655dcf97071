"""`result.json`: written last and atomically, so that its existence means finished."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from ptrun.errors import UserError
from ptrun.types import RunResult

FINISHED, FAILED = "result.json", "failure.json"
RERUNS = "reruns"  # the name below `outputs` of what `ptrun rerun` did again


def write_json(file: Path, content: Any) -> None:
    """Write a file in one step: whole or not at all, also after a crash."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    with draft.open("w", encoding="utf-8") as opened:
        json.dump(content, opened, indent=1, ensure_ascii=False)
        opened.write("\n")
        opened.flush()
        os.fsync(opened.fileno())
    draft.replace(file)


def write(folder: Path, result: RunResult) -> None:
    """Write a finished run's `result.json`, or a failed one's `failure.json`."""
    write_json(folder / (FINISHED if result.status == "finished" else FAILED), asdict(result))
    if result.status == "finished":
        (folder / FAILED).unlink(missing_ok=True)


def read(folder: Path) -> RunResult | None:
    """Return what a run folder claims, or None while it has neither finished nor failed.

    Raises:
        UserError: the file is damaged.
    """
    for name in (FINISHED, FAILED):
        if (folder / name).is_file():
            return _parse(folder / name)
    return None


def read_all(root: Path) -> list[RunResult]:
    """Return the results of all run folders below a folder, in order of their paths.

    Left out is what would count a seed twice: folders that `rerun=true` set aside (their names hold
    a `~`), and what `ptrun rerun` did again.
    """
    return [result for folder in run_folders(root) if (result := read(folder)) is not None]


def run_folders(root: Path) -> list[Path]:
    """Return the run folders below a folder that finished or failed, in order of their paths."""
    folders = {file.parent for name in (FINISHED, FAILED) for file in root.rglob(name)}
    own = [folder for folder in sorted(folders) if "~" not in folder.name]
    return [folder for folder in own if RERUNS not in folder.relative_to(root).parts]


def _parse(file: Path) -> RunResult:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        known = {field.name for field in fields(RunResult)}
        found = RunResult(**{key: value for key, value in content.items() if key in known})
        _check(found)
        return found
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{file}: damaged ({error}); delete it to run again.") from error


def _check(found: RunResult) -> None:
    """Raise TypeError where what every reader relies on is of another kind."""
    parts = found.metrics.values()
    own = (found.names, found.learned_parameters, found.manifest, found.config, *parts)
    if not (isinstance(found.seed, int) and all(isinstance(part, Mapping) for part in own)):
        raise TypeError("a value of another kind than runs write")
