"""What the YAML file of a tagging task says about its files, and the files a folder has for it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ptrun.config.explain import composed
from ptrun.config.paths import leads_out
from ptrun.errors import UserError
from ptrun.task.shown import names, shown

_SPLITS = {
    "train": {"train"},
    "dev": {"dev", "devel", "development", "valid", "validation", "testa"},
    "test": {"test", "testb"},
}
"""The words in the names of the files of each part."""


@dataclass(frozen=True)
class Fields:
    """The folder, splits and fields of a tagging task; `entities` None allows any type."""

    folder: str
    splits: Mapping[str, str | None]
    tokens: str
    tags: str
    predicate: str | None = None
    entities: Sequence[str] | None = None


def task_fields(task: str) -> Fields:
    """Return what the file of a task says.

    Raises:
        UserError: there is no such task, it tags nothing, or a name in it leads out of the folder.
    """
    node = composed([f"task={task}"]).task
    if not {"tokens", "tags", "splits"} <= node.keys():
        raise UserError(f"--task {task}: no task of words and tags; conll03 is one.")
    folder = str((node.get("source") or {}).get("folder", node["name"]))
    splits: dict[str, str | None] = node["splits"]
    for name in (folder, *filter(None, splits.values())):
        if leads_out(name):
            raise UserError(f"--task {task}: {shown(name)} in its file leads out of --out.")
    given = (node["tokens"], node["tags"], node.get("predicate"), node.get("entities"))
    return Fields(folder, splits, *given)


def candidates(source: Path, part: str) -> list[Path]:
    """Return the files or folders whose name has a word of the part: `eng.testa`, `dev.txt`."""
    entries = sorted(source.iterdir()) if source.is_dir() else []
    return [e for e in entries if _SPLITS[part] & set(re.split(r"[\W_]+", e.name.lower()))]


def found(source: Path, part: str) -> Path:
    """Return the one file or folder of a part.

    Raises:
        UserError: there is none, or there are several.
    """
    files = candidates(source, part)
    if len(files) == 1:
        return files[0]
    entries = files or (sorted(source.iterdir()) if source.is_dir() else [])
    problem = f"several files for {part}" if files else f"no file for {part}"
    raise UserError(
        f"{source}: {problem} among {names(e.name for e in entries) or 'no files'}; type "
        f"--{part} FILE."
    )
