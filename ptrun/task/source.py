"""Rows of a data set: from the user's local files, the pocket world, or the hub."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptrun.errors import UserError
from ptrun.hub import go_offline_if_unreachable
from ptrun.task.lines import json_lines
from ptrun.task.ppt.construction import read
from ptrun.task.shown import names, shown

_KEYS = {"hub", "revision", "subset", "rename", "pocket", "folder", "how"}


@dataclass(frozen=True)
class Row:
    """One record and where it stands (`file:line`), so that an error can say so."""

    where: str
    data: Mapping[str, Any]

    def text(self, key: str) -> str:
        """Return a field that holds text.

        Raises:
            UserError: there is none, or it is something else.
        """
        found = self.value(key)
        if not isinstance(found, str):
            raise UserError(f"{self.where}: field {key!r} is {shown(found)}; expected text.")
        return found

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
    """Where a task's rows come from.

    `origin` names a hub data set (`hub`, `subset`, pinned `revision`, hub fields to `rename`) or a
    `pocket` task, or a `corpus` that examples are made of (`ptrun.task.ppt.construction`). A folder
    `<data_dir>/<folder>` with `<split>.jsonl[.gz]` files wins over each; it has the task's name, or
    the one `origin` gives as `folder`. With a `folder` alone the data are the user's own, by
    licence or because no hub has them, and `how` says how to make them. A `variant` is a folder of
    other files for the same task, `<data_dir>/<variant>/<last part of folder>`; nothing replaces
    those.
    """

    name: str
    origin: Mapping[str, Any]
    data_dir: str | None
    variant: str | None = None

    def __post_init__(self) -> None:
        """Refuse an origin that no reader understands."""
        if "corpus" in self.origin:
            read(self.origin)
            return
        unknown = set(self.origin) - _KEYS
        if unknown or not {"hub", "pocket", "folder"} & set(self.origin):
            raise UserError(
                f"task.source has {sorted(self.origin)}; give `pocket: NAME`, `hub: ID` with "
                "`revision` and perhaps `subset`, or `folder: NAME` for local files alone."
            )

    @property
    def folder(self) -> str:
        """The local folder, below `data_dir`."""
        own = str(self.origin.get("folder", self.name))
        return f"{self.variant}/{own.rsplit('/', 1)[-1]}" if self.variant else own

    def exists(self, split: str) -> bool:
        """Return whether local files hold a split."""
        return self.data_dir is not None and self._found(split) is not None

    def rows(self, split: str) -> Iterator[Row]:
        """Yield the rows of one split.

        Raises:
            UserError: the split cannot be read, is empty, or a line is not a JSON object.
        """
        empty = True
        for row in self._read(split):
            empty = False
            yield row
        if empty:
            raise UserError(f"{self._name(split)}: no examples; the split is empty.")

    def digest(self, splits: list[str]) -> str:
        """Return 16 hex over the local files, or the origin's name and version."""
        files = [self._file(split) for split in splits] if self._is_local() else []
        if not files and "corpus" in self.origin:
            return read(self.origin).digest()
        if not files:
            origin = {key: value for key, value in self.origin.items() if key != "how"}
            return json.dumps(origin, sort_keys=True)
        hashed = hashlib.sha256()
        for file in files:
            hashed.update(file.read_bytes())
        return hashed.hexdigest()[:16]

    def _read(self, split: str) -> Iterator[Row]:
        if self._is_local():
            return (Row(where, data) for where, data in json_lines(self._file(split)))
        if self.variant:
            raise UserError(
                f"setting={self.variant} has its own files: give data_dir=DIR with "
                f"DIR/{self.folder}/{{train,validation,test}}.jsonl[.gz]."
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
        """Local files win; what is made here only looks there if the user put a folder there."""
        if self.data_dir is None:
            return False
        root = Path(self.data_dir)
        if not root.is_dir():
            raise UserError(f"data_dir={self.data_dir}: no such folder.")
        made = bool({"pocket", "corpus"} & set(self.origin))
        return not made or (root / self.folder).is_dir()

    def _found(self, split: str) -> Path | None:
        base = self._base(split)
        both = (base, base.with_name(f"{base.name}.gz"))
        return next((file for file in both if file.is_file()), None)

    def _base(self, split: str) -> Path:
        return Path(self.data_dir or "") / self.folder / f"{split}.jsonl"

    def _file(self, split: str) -> Path:
        if found := self._found(split):
            return found
        raise UserError(
            f"{self._base(split)}[.gz]: no such file. Put it there, or name another "
            f"data_dir=...{self._how}"
        )

    @property
    def _how(self) -> str:
        return f"\nHow to make it: {self.origin['how']}" if "how" in self.origin else ""

    def _name(self, split: str) -> str:
        return str(self._file(split)) if self._is_local() else f"{self.folder}/{split}"

    def _hub(self, split: str) -> Iterator[Row]:
        go_offline_if_unreachable()
        from datasets import load_dataset
        from datasets.exceptions import DatasetsError

        hub, revision = self.origin["hub"], self.origin.get("revision")
        try:
            data = load_dataset(hub, self.origin.get("subset"), split=split, revision=revision)
        except (DatasetsError, OSError, ValueError) as error:
            reason = str(error).splitlines()[0][:120]
            raise UserError(
                f"task={self.folder}: cannot read {hub} from the hub ({reason}).\n"
                f"Type data_dir=DIR with files DIR/{self.folder}/{{train,validation,test}}"
                ".jsonl[.gz], or task=pocket_ner for data that needs no network."
            ) from error
        classes = {key: _label_names(feature) for key, feature in data.features.items()}
        for index, row in enumerate(data):
            decoded = {key: _decode(value, classes[key]) for key, value in row.items()}
            yield self._renamed(Row(f"{hub}/{split} row {index}", decoded))

    def _renamed(self, row: Row) -> Row:
        """A renamed field replaces one that has its new name: `label_text` beside `label`."""
        rename: Mapping[str, str] = self.origin.get("rename", {})
        kept = {key: value for key, value in row.data.items() if key not in rename}
        return Row(row.where, {**kept, **{new: row.value(old) for old, new in rename.items()}})


def _pocket(name: str, split: str) -> Iterator[Row]:
    from ptrun.pocket.tasks import rows

    for index, data in enumerate(rows(name, split)):
        yield Row(f"{name}/{split} row {index}", data)


def _label_names(feature: Any) -> list[str] | None:
    """Return the class names of a hub feature, so that labels map by name, never by index."""
    inner = getattr(feature, "feature", feature)
    return getattr(inner, "names", None)


def _decode(value: Any, names: list[str] | None) -> Any:
    if names is None or value is None:
        return value
    if isinstance(value, list):
        return [_decode(item, names) for item in value]
    return names[value] if value >= 0 else value
