"""Find a run by its folder, its id, the start of its id or its 8 hex digits, below `outputs`.

If several runs have the same id, reruns and runs that `rerun=true` set aside do not count.
"""

import logging
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptrun.errors import UserError
from ptrun.files import from_json, read_text
from ptrun.folder import digest, result
from ptrun.types import RunResult

_LOG = logging.getLogger(__name__)
_MAX_LISTED = 3
_HASH = re.compile(r"[0-9a-f]{8}")


@dataclass(frozen=True)
class RunFolder:
    """A run folder and its result."""

    folder: Path
    result: RunResult

    def facts(self, name: str) -> dict[str, Any]:
        """Return a group of the manifest; empty if the run has none."""
        group = self.result.manifest.get(name)
        return dict(group) if isinstance(group, Mapping) else {}

    def rows(self, name: str) -> list[dict[str, Any]] | None:
        """Return the rows of a JSON lines file of the folder; None if there is no such file."""
        file = self.folder / name
        if not file.is_file():
            return None
        with digest.damaged(file):
            text = read_text(file, limit=digest.LONGEST)
        rows = []
        for number, line in enumerate(text.split("\n"), 1):  # a text may hold other breaks
            if line:
                with digest.damaged(f"{file}:{number}"):
                    row = dict(from_json(line))
                    rows.append(digest.unsealed(row) if digest.DIGEST in row else row)
        result.check_beside(self.result, file)
        return rows


def find(typed: str, command: str, outputs: Path = Path("outputs")) -> RunFolder:
    """Return the run of a folder or an id."""
    folder, exists = place_of(typed, command, outputs), Path(typed).expanduser().exists()
    done = result.read(folder) if exists else result.read_named(folder)
    if done is None:
        told = f"not a run, it has no {result.FINISHED} or {result.FAILED}."
        if (folder / "metrics.jsonl").is_file():
            told = "this run has not ended. Type its command again to resume it."
        elif below := result.ended_folders(folder):
            told = f"holds {len(below)} runs. Give one of them, such as {below[0]}."
        raise UserError(f"{command} {folder}: {told}")
    if done.run_id != folder.resolve().name.partition("~")[0]:
        _LOG.warning("%s holds the run %s", folder, done.run_id)
    return RunFolder(folder, done)


def place_of(typed: str, command: str, outputs: Path, *, ended: bool = True) -> Path:
    """Return the folder of a run, which has `ended` or may be at work."""
    path = Path(typed).expanduser()
    if path.name in (result.FINISHED, result.FAILED) and path.is_file():
        return path.parent
    if path.is_dir():
        return path
    from ptrun.folder.scan import folders as begun  # imports Hydra

    every = result.ended_folders(outputs) if ended else sorted(begun(outputs))
    folders = [] if path.is_absolute() else every
    matches = [run for run in folders if run.name == typed]
    for run in [] if matches else folders:
        ids = [str(run.relative_to(outputs)), run.name, run.name.partition("~")[0]]
        if fitting(typed, ids):
            matches.append(run)
    if len(matches) > 1:
        left_out = {*result.ended_folders(outputs)} - {*result.run_folders(outputs)}
        matches = [run for run in matches if run not in left_out] or matches
    if not matches:
        raise UserError(
            f"{command} {typed}: no such folder, and no run below {outputs} has an id that starts "
            "with this. Give a run folder, the start of a run id or its last 8 digits."
        )
    if len(matches) > 1:
        shown = [*map(str, matches[:_MAX_LISTED]), *(["..."] if matches[_MAX_LISTED:] else [])]
        raise UserError(
            f"{command} {typed}: {len(matches)} runs match. Give one of them: {', '.join(shown)}"
        )
    return matches[0]


def fitting(typed: str, ids: Collection[str]) -> list[str]:
    """Return the ids that a text stands for: itself, or those with its start or 8 last digits."""
    ending = f"-{typed}" if is_hash(typed) else None
    fit = [name for name in ids if name.startswith(typed) or (ending and name.endswith(ending))]
    return [typed] if typed in ids else fit if typed else []


def is_hash(text: str) -> bool:
    """Return whether a text may be the hash at the end of a run id."""
    return _HASH.fullmatch(text) is not None
