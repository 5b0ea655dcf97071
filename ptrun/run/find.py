"""Which run is meant: a folder, or an id or its unique beginning below `outputs`.

Of runs of one id the first is meant, not its reruns or what `rerun=true` set aside.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptrun.errors import UserError
from ptrun.run import result
from ptrun.types import RunResult

_SHOWN = 3


@dataclass(frozen=True)
class Run:
    """A run folder and what it claims."""

    folder: Path
    result: RunResult

    def facts(self, name: str) -> dict[str, Any]:
        """Return a group of the manifest's facts; none where the run is older than they."""
        found = self.result.manifest.get(name)
        return dict(found) if isinstance(found, Mapping) else {}

    def rows(self, name: str) -> list[dict[str, Any]] | None:
        """Return the lines of one of its files; None where it is not there.

        Raises:
            UserError: a line is damaged.
        """
        file = self.folder / name
        if not file.is_file():
            return None
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError as error:
            raise UserError(f"{file}: damaged ({error.reason}); type rerun=true.") from error
        return [_row(file, number, line) for number, line in enumerate(lines, 1)]


def find(given: str, command: str, outputs: Path = Path("outputs")) -> Run:
    """Return the run that is meant.

    Raises:
        UserError: there is none, several are meant, it has not ended, or its result is damaged.
    """
    folder = _folder(given, command, outputs)
    found = result.read(folder)
    if found is None:
        raise UserError(_no_run(folder, command))
    return Run(folder, found)


def _folder(given: str, command: str, outputs: Path) -> Path:
    there = Path(given).expanduser()
    if there.name in (result.FINISHED, result.FAILED) and there.is_file():
        return there.parent
    if there.is_dir():
        return there
    known = [] if there.is_absolute() else _below(outputs)
    exact = [folder for folder in known if folder.name == given]
    begun = [folder for folder in known if _begins(folder, given, outputs)]
    found = exact or begun
    found = [folder for folder in found if folder in result.run_folders(outputs)] or found
    if len(found) == 1:
        return found[0]
    if found:
        told = ", ".join(map(str, found[:_SHOWN])) + (", ..." if len(found) > _SHOWN else "")
        raise UserError(f"{command} {given}: {len(found)} runs are meant; give one: {told}.")
    raise UserError(
        f"{command} {given}: no such folder, and no run below {outputs} begins so; give a run's "
        "folder or the beginning of its id."
    )


def _below(outputs: Path) -> list[Path]:
    """Return all run folders that ended, those set aside among them."""
    files = [file for name in (result.FINISHED, result.FAILED) for file in outputs.rglob(name)]
    return sorted({file.parent for file in files})


def _begins(folder: Path, given: str, outputs: Path) -> bool:
    return folder.name.startswith(given) or str(folder.relative_to(outputs)).startswith(given)


def _no_run(folder: Path, command: str) -> str:
    if (folder / "metrics.jsonl").is_file():
        return f"{command} {folder}: this run has not ended; type its command again to go on."
    below = _below(folder)
    if below:
        return f"{command} {folder}: holds {len(below)} runs; give one, such as {below[0]}."
    return f"{command} {folder}: not a run: no {result.FINISHED} or {result.FAILED} in it."


def _row(file: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise UserError(f"{file}:{number}: damaged ({error.msg}); type rerun=true.") from error
    if not isinstance(row, dict):
        raise UserError(f"{file}:{number}: damaged (no object); type rerun=true.")
    return row
