"""SuperGLUE's files as published, and FewGLUE's in the same form.

SuperGLUE (Wang et al. 2019) has `<Task>/{train,val,test}.jsonl`. The labels of test are hidden: its
rows are for `ptrun predict --submission`, and no task reports on them. FewGLUE_32dev (P-tuning) has
`<Task>/{train,dev32,val}.jsonl`: 32 examples to train on, 32 to select on, and SuperGLUE's val to
report on.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from ptrun.errors import UserError
from ptrun.importing.data.fields import rows
from ptrun.importing.data.superglue_rows import READERS
from ptrun.importing.data.writing import Made, Record

_FEW = 32
_SUPERGLUE = {"train": "train", "val": "validation", "test": "test"}
_FEWGLUE = {"train": "train", "dev32": "validation", "val": "test"}
_FEWGLUE_ONLY = ("dev32.jsonl", "unlabeled.jsonl")


def superglue(source: Path) -> list[Made]:
    """Return the files of all tasks that a folder of SuperGLUE has.

    Raises:
        UserError: it has none, one lacks a split, or the files are FewGLUE's.
    """
    for folder in _tasks(source):
        if few := next((folder / n for n in _FEWGLUE_ONLY if (folder / n).is_file()), None):
            raise UserError(
                f"{few}: a file of FewGLUE; type ptrun import data fewglue {source} --out DIR."
            )
    return _made(source, "superglue", _SUPERGLUE, needed=("train", "val"))


def fewglue(source: Path) -> list[Made]:
    """Return the files of all tasks that a folder of FewGLUE has; dev32 and val may be absent.

    Raises:
        UserError: it has none, one lacks train, or a train file has more than 32 lines.
    """
    for folder in _tasks(source):
        file = folder / "train.jsonl"
        more = islice(rows(file), _FEW, None) if file.is_file() else iter(())
        if row := next(more, None):
            raise UserError(
                f"{row.where}: FewGLUE has {_FEW} examples, this file has more. For SuperGLUE type "
                f"ptrun import data superglue {source} --out DIR."
            )
    return _made(source, "fewglue", _FEWGLUE, needed=("train",))


def _tasks(source: Path) -> list[Path]:
    """Return the folders of the tasks."""
    if found := [source / name for name in READERS if (source / name).is_dir()]:
        return found
    raise UserError(f"{source}: none of the folders {', '.join(READERS)} is there.")


def _made(source: Path, kind: str, splits: Mapping[str, str], needed: Sequence[str]) -> list[Made]:
    made = []
    for folder in _tasks(source):
        for theirs, ours in splits.items():
            file = folder / f"{theirs}.jsonl"
            if file.is_file():
                place = f"{kind}/{folder.name.lower()}"
                rows_of = _read(folder.name, file, hidden=kind == "superglue" and theirs == "test")
                made.append(Made(place, f"{ours}.jsonl", [file], rows_of))
            elif theirs in needed:
                raise UserError(f"{file}: no such file; {folder.name} needs it.")
    return made


def _read(task: str, file: Path, *, hidden: bool) -> Iterator[Record]:
    return (record for row in rows(file) for record in READERS[task](row, hidden=hidden))
