"""`result.json`: written last and atomically, so a folder that has it is a finished run."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from ptrun.errors import UserError
from ptrun.folder.sharing import read_text, replace
from ptrun.types import RunResult

FINISHED, FAILED = "result.json", "failure.json"
RERUNS = "reruns"  # the name below `outputs` of the runs of `ptrun rerun`


def write_text(file: Path, text: str) -> None:
    """Write a file atomically: after a crash it is complete or as before."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    with draft.open("w", encoding="utf-8") as opened:
        opened.write(text)
        opened.flush()
        os.fsync(opened.fileno())
    replace(draft, file)


def write_json(file: Path, content: Any) -> None:
    """Write a JSON file atomically."""
    write_text(file, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def write(folder: Path, result: RunResult) -> None:
    """Write a finished run's `result.json`, or a failed one's `failure.json`."""
    write_json(folder / (FINISHED if result.status == "finished" else FAILED), asdict(result))
    if result.status == "finished":
        (folder / FAILED).unlink(missing_ok=True)


def read(folder: Path) -> RunResult | None:
    """Return the result of a run folder; None if the run has neither finished nor failed.

    Raises:
        UserError: the file is damaged.
    """
    for name in (FINISHED, FAILED):
        if (folder / name).is_file():
            return _parse(folder / name)
    return None


def read_all(root: Path) -> list[RunResult]:
    """Return the results of `run_folders`."""
    return [result for folder in run_folders(root) if (result := read(folder)) is not None]


def run_folders(root: Path) -> list[Path]:
    """Return the run folders below a folder that finished or failed, in order of their paths.

    Folders that would count a seed twice are left out: those that `rerun=true` set aside (their
    names hold a `~`) and those of `ptrun rerun`.
    """
    own = [folder for folder in ended_folders(root) if "~" not in folder.name]
    return [folder for folder in own if RERUNS not in folder.relative_to(root).parts]


def ended_folders(root: Path) -> list[Path]:
    """Return all run folders below a folder that finished or failed, in order of their paths."""
    return sorted({file.parent for name in (FINISHED, FAILED) for file in root.rglob(name)})


def _parse(file: Path) -> RunResult:
    names = {field.name for field in fields(RunResult)}
    try:
        content = json.loads(read_text(file))
        done = RunResult(**{key: value for key, value in content.items() if key in names})
        _check_types(done)
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{file}: damaged ({error}). Delete it to run again.") from error
    return done


def _check_types(done: RunResult) -> None:
    """Raise TypeError if a field that every reader relies on has the wrong type."""
    parts = done.metrics.values()
    records = (done.names, done.learned_parameters, done.manifest, done.config, *parts)
    if not (isinstance(done.seed, int) and all(isinstance(part, Mapping) for part in records)):
        raise TypeError("a field has the wrong type")
