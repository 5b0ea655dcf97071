"""Rows of a data set: from the user's local files, the pocket world, or the hub."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from ptrun.config.identity import canonical
from ptrun.errors import UserError
from ptrun.hub.data import read as read_hub
from ptrun.hub.repository import Repository
from ptrun.task.lines import json_lines
from ptrun.task.ppt.construction import read
from ptrun.task.ppt.made import positive
from ptrun.task.shown import names, shown

_BLOCK = 2**20  # bytes
_KEYS = {"hub", "revision", "subset", "rename", "pocket", "folder", "how", "rows"}
_MADE = {"fewglue": "type ptrun import data fewglue SOURCE --out DIR, with FewGLUE_32dev in SOURCE"}
"""How the files of a setting are made, by its folder."""


@dataclass(frozen=True)
class Row:
    """One record, and its place (`file:line`) for error messages."""

    where: str
    data: Mapping[str, Any]

    def text(self, key: str) -> str:
        """Return a text field.

        Raises:
            UserError: the row has no such field, or it is not text.
        """
        value = self.value(key)
        if not isinstance(value, str):
            raise UserError(f"{self.where}: field {key!r} is {shown(value)}; expected text.")
        return value

    def value(self, key: str) -> Any:
        """Return a field.

        Raises:
            UserError: the row has no such field.
        """
        if key not in self.data:
            raise UserError(
                f"{self.where}: no field {key!r}; this row has {names(sorted(self.data))}."
            )
        return self.data[key]

    def with_fields(self, fields: Mapping[str, Any]) -> "Row":
        """Return the row with some fields added or replaced."""
        return Row(self.where, {**self.data, **fields})


@dataclass(frozen=True, eq=False)
class Source:
    """The source of a task's rows.

    `origin` names a hub data set (`hub`, `subset`, pinned `revision`, hub fields to `rename`), a
    `pocket` task, or a `corpus` to make examples from (`ptrun.task.ppt.construction`). A local
    folder `<data_dir>/<folder>` with `<split>.jsonl[.gz]` files has priority; `folder` defaults to
    the task's name. An origin of `folder` alone means local files only, because of a licence or
    because no hub has the data; `how` says how to make them. `rows` has the largest number of rows
    to read of a split, by its name; the rest of that split is not read. A `variant` is a folder of
    other files for the same task, `<data_dir>/<variant>/<last part of folder>`; it has no other
    source.
    """

    name: str
    origin: Mapping[str, Any]
    data_dir: str | None
    variant: str | None = None

    def __post_init__(self) -> None:
        """Refuse an origin of no known kind."""
        keys = set(self.origin)
        if "corpus" in keys:
            read(self.origin)
        elif keys - _KEYS or not {"hub", "pocket", "folder"} & keys:
            raise UserError(
                f"task.source has {sorted(keys)}; give `pocket: NAME`, `hub: ID` with `revision` "
                "and perhaps `subset`, or `folder: NAME` for local files only."
            )
        rows = self.origin.get("rows", {})
        if not isinstance(rows, Mapping) or not positive(rows.values()):
            raise UserError(
                f"task.source.rows={rows}: expected a whole number from 1 for each split, for "
                "example task.source.rows={validation:100,test:100}."
            )

    @cached_property
    def _on_hub(self) -> Repository:
        return Repository("dataset", str(self.origin["hub"]), self.origin.get("revision"))

    @property
    def repository(self) -> Repository | None:
        """The repository that the rows come from; None if they do not come from the hub."""
        return self._on_hub if "hub" in self.origin and not self._is_local() else None

    @property
    def folder(self) -> str:
        """The local folder, below `data_dir`."""
        folder = str(self.origin.get("folder", self.name))
        return f"{self.variant}/{folder.rsplit('/', 1)[-1]}" if self.variant else folder

    def beside(self, name: str) -> Path | None:
        """Return the place of another file beside the local splits."""
        return Path(self.data_dir) / self.folder / name if self.data_dir is not None else None

    def exists(self, split: str) -> bool:
        """Return whether a split has a local file."""
        return self.data_dir is not None and self._local(split) is not None

    def rows(self, split: str) -> Iterator[Row]:
        """Yield the rows of one split.

        Raises:
            UserError: the split cannot be read or is empty, or a line is not a JSON object.
        """
        empty = True
        for row in islice(self._read(split), self._most(split)):
            empty = False
            yield row
        if empty:
            name = self._file(split) if self._is_local() else f"{self.folder}/{split}"
            raise UserError(f"{name}: no examples; the split is empty.")

    def digest(self, splits: list[str]) -> str:
        """Return 16 hex over the local files, or the origin as JSON.

        The origin names the revision of a hub data set and not its commit; `ptrun.hub.repository`
        says why.
        """
        if self._is_local() and splits:
            hashed = hashlib.sha256()
            for split in splits:
                if (most := self._most(split)) is not None:
                    hashed.update(f"first {most} rows\n".encode())
                with self._file(split).open("rb") as opened:
                    while block := opened.read(_BLOCK):
                        hashed.update(block)
            return hashed.hexdigest()[:16]
        if "corpus" in self.origin:
            return read(self.origin).digest()
        origin = {key: value for key, value in self.origin.items() if key != "how"}
        return canonical(origin)

    def _most(self, split: str) -> int | None:
        """Return the largest number of rows to read; None for all."""
        most: int | None = self.origin.get("rows", {}).get(split)
        return most

    def _read(self, split: str) -> Iterator[Row]:
        if self._is_local():
            return (Row(where, data) for where, data in json_lines(self._file(split)))
        if self.variant:
            raise UserError(
                f"setting={self.variant} has its own files: give data_dir=DIR with "
                f"DIR/{self.folder}/{{train,validation,test}}.jsonl[.gz].{self._how}"
            )
        if "corpus" in self.origin:
            return (Row(where, data) for where, data in read(self.origin).rows(split))
        if "pocket" in self.origin:
            return _pocket(self.origin["pocket"], split)
        if "hub" in self.origin:
            return self._hub(split)
        raise UserError(
            f"task={self.name}: local files only; give data_dir=DIR with "
            f"DIR/{self.folder}/{split}.jsonl[.gz].{self._how}"
        )

    def _is_local(self) -> bool:
        """Return whether to read local files; made data need a folder that the user put there."""
        if self.data_dir is None:
            return False
        root = Path(self.data_dir)
        if not root.is_dir():
            raise UserError(f"data_dir={self.data_dir}: no such folder.")
        made = bool({"pocket", "corpus"} & set(self.origin))
        return not made or (root / self.folder).is_dir()

    def _local(self, split: str) -> Path | None:
        base = self._base(split)
        both = (base, base.with_name(f"{base.name}.gz"))
        return next((file for file in both if file.is_file()), None)

    def _base(self, split: str) -> Path:
        return Path(self.data_dir or "") / self.folder / f"{split}.jsonl"

    def _file(self, split: str) -> Path:
        if file := self._local(split):
            return file
        raise UserError(
            f"{self._base(split)}[.gz]: no such file. Put it there, or give another "
            f"data_dir=...{self._how}"
        )

    @property
    def _how(self) -> str:
        how = self.origin.get("how") if self.variant is None else _MADE.get(self.variant)
        return f"\nHow to make it: {how}" if how else ""

    def _hub(self, split: str) -> Iterator[Row]:
        hub = self.origin["hub"]
        try:
            data = read_hub(self._on_hub, self.origin.get("subset"), split)
        except UserError as error:
            raise UserError(
                f"task={self.name}: {error} "
                f"For local files type data_dir=DIR with DIR/{self.folder}/"
                f"{{train,validation,test}}.jsonl[.gz].{self._how}"
            ) from error
        classes = {key: _label_names(feature) for key, feature in data.features.items()}
        for index, row in enumerate(data):
            decoded = {key: _decode(value, classes[key]) for key, value in row.items()}
            yield self._renamed(Row(f"{hub}/{split} row {index}", decoded))

    def _renamed(self, row: Row) -> Row:
        """Rename fields; a field that already has the new name is replaced."""
        rename: Mapping[str, str] = self.origin.get("rename", {})
        kept = {key: value for key, value in row.data.items() if key not in rename}
        return Row(row.where, {**kept, **{new: row.value(old) for old, new in rename.items()}})


def _pocket(name: str, split: str) -> Iterator[Row]:
    from ptrun.pocket.tasks import rows

    for index, data in enumerate(rows(name, split)):
        yield Row(f"{name}/{split} row {index}", data)


def _label_names(feature: Any) -> list[str] | None:
    """Return the class names of a hub feature: labels map by name, never by index."""
    return getattr(getattr(feature, "feature", feature), "names", None)


def _decode(value: Any, names: list[str] | None) -> Any:
    if names is None or value is None:
        return value
    if isinstance(value, list):
        return [_decode(item, names) for item in value]
    return names[value] if value >= 0 else value
