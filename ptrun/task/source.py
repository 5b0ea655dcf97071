"""Rows of a data set: from the user's local files, the pocket world, or the hub."""

import hashlib
import json
import logging
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from glob import escape
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ptrun.config.build import build
from ptrun.config.components import TARGET
from ptrun.config.compose import Composed
from ptrun.config.identity import canonical
from ptrun.errors import UserError, names, near, shown
from ptrun.files import read_json
from ptrun.hub.repository import CONVERTED, Repository, answered_status, failure

_LOG = logging.getLogger(__name__)
T = TypeVar("T")
VERDICT, LEFT_OUT = "answer", ("reject", "ignore")
"""Prodigy's column, and its values that are no gold."""

_KEYS = {"hub", "revision", "subset", "rename", "pocket", "folder", "how", "rows"}
_KEYS |= {"reasoning", "options", "seed"}
_FEWGLUE = "type ptrun import fewglue SOURCE --out DIR, with FewGLUE_32dev in SOURCE"


class Row(NamedTuple):
    """One record, and its place (`file:line`) for error messages."""

    where: str
    data: Mapping[str, Any]

    def text(self, key: str) -> str:
        """Return a text field."""
        return self.typed(key, str, "text")

    def typed(self, key: str, kind: type[T], expected: str) -> T:
        """Return a field of a type."""
        value = self.value(key)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.wrong(key, expected)
        return value

    def wrong(self, key: str, expected: str) -> UserError:
        """Return the error of a field that is not what is expected."""
        value = shown(self.data.get(key))
        return UserError(f"{self.where}: field {key!r} is {value}; expected {expected}.")

    def value(self, key: str) -> Any:
        """Return a field."""
        if key not in self.data:
            raise UserError(
                f"{self.where}: no field {key!r}; this row has {names(sorted(self.data))}."
            )
        return self.data[key]

    def with_fields(self, fields: Mapping[str, Any]) -> "Row":
        """Return the row with some fields added or replaced."""
        return Row(self.where, {**self.data, **fields})


@dataclass
class Account:
    """The rows of a file: how many were read, left out by reason, and read in part."""

    read: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    noted: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        reasons = [f"{count:,} left out: {why}" for why, count in self.left_out.items()]
        reasons += [f"{count:,} {what}" for what, count in self.noted.items()]
        return f"{self.read:,} rows{', ' if reasons else ''}{'; '.join(reasons)}"

    def record(self) -> dict[str, Any]:
        """Return it as plain data."""
        noted = {"noted": dict(self.noted)} if self.noted else {}
        return {"read": self.read, "left_out": dict(self.left_out), **noted}


class Made(ABC):
    """Rows that a class makes, named by `task.source._target_`; its parameters are the keys."""

    @classmethod
    def completed(cls, composed: Composed) -> Mapping[str, Any]:
        """Return the task of a run with what this source adds to it; no row is made."""
        return composed.task

    @abstractmethod
    def rows(self, split: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the rows of a split, each with its place for error messages."""

    @abstractmethod
    def digest(self) -> str:
        """Return what identifies the rows, independent of where files are."""


def positive(values: Iterable[Any]) -> bool:
    """Return whether all values are whole numbers above 0."""
    return all(type(value) is int and value > 0 for value in values)


@dataclass(frozen=True, eq=False)
class Source:
    """The source of a task's rows.

    `origin` names a hub data set (`hub`, `subset`, pinned `revision`, hub fields to `rename`), a
    `pocket` task, a class that makes rows (`_target_`, a `Made`), or a generator of questions
    (`ptrun.task.reasoning`). A local folder `<data_dir>/<folder>` with `<split>.jsonl[.gz]` files
    has priority; `folder` defaults to the task's name. An origin of `folder` alone means local
    files only, because of a licence or because no hub has the data; `how` says how to make them.
    `rows` has the largest number of rows to read of a split, by its name; the rest of that split is
    not read. A `variant` is a folder of other files for the same task, `<data_dir>/<variant>/<last
    part of folder>`; it has no other source.
    """

    name: str
    origin: Mapping[str, Any]
    data_dir: str | None
    variant: str | None = None

    def __post_init__(self) -> None:
        """Refuse an origin of no known kind."""
        keys = set(self.origin)
        if TARGET not in keys and (
            keys - _KEYS or not {"hub", "pocket", "reasoning", "folder"} & keys
        ):
            raise UserError(
                f"task.source has {sorted(keys)}; give `pocket: NAME`, `hub: ID` with `revision`, "
                "or `folder: NAME` for local files only."
            )
        rows = self.origin.get("rows", {})
        if not isinstance(rows, Mapping) or not positive(rows.values()):
            raise UserError(f"task.source.rows={rows}: expected a whole number for each split.")

    @cached_property
    def made(self) -> Made:
        """What makes the rows, if `origin` names a class."""
        made: Made = build("task", self.origin)
        return made

    @property
    def store(self) -> str | None:
        """The folder that keeps examples in files, if there may be millions; None: in memory."""
        return self.origin.get("store")

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
        """Yield the rows of one split."""
        empty = True
        for row in islice(self._read(split), self.origin.get("rows", {}).get(split)):
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
                if (most := self.origin.get("rows", {}).get(split)) is not None:
                    hashed.update(f"first {most} rows\n".encode())
                with self._file(split).open("rb") as opened:
                    hashlib.file_digest(opened, lambda: hashed)
            return hashed.hexdigest()[:16]
        if TARGET in self.origin:
            return self.made.digest()
        origin = {key: value for key, value in self.origin.items() if key != "how"}
        if "reasoning" in origin:
            from ptrun.task import reasoning

            origin["package"] = reasoning.installed()
        return canonical(origin)

    def _read(self, split: str) -> Iterator[Row]:
        if self._is_local():
            from ptrun.task.lines import json_lines

            return (Row(where, data) for where, data in json_lines(self._file(split)))
        if self.variant:
            raise UserError(
                f"setting={self.variant} has its own files: give data_dir=DIR with {self._wanted}"
            )
        if TARGET in self.origin:
            return (Row(where, data) for where, data in self.made.rows(split))
        if "pocket" in self.origin:
            from ptrun.pocket.tasks import rows

            name = self.origin["pocket"]
            numbered = enumerate(rows(name, split))
            return (Row(f"{name}/{split} row {index}", data) for index, data in numbered)
        if "reasoning" in self.origin:
            from ptrun.task import reasoning

            questions = reasoning.rows(self.origin, split)
            return (Row(f"{self.name}/{split} {name}", data) for name, data in questions)
        if "hub" in self.origin:
            return self._hub(split)
        raise UserError(
            f"task={self.name}: local files only; give data_dir=DIR with {self._wanted}"
        )

    def _is_local(self) -> bool:
        """Return whether to read local files; made data need a folder that the user put there."""
        if self.data_dir is None:
            return False
        root = Path(self.data_dir)
        if not root.is_dir():
            raise UserError(f"data_dir={self.data_dir}: no such folder.")
        is_made = bool({"pocket", TARGET, "reasoning"} & set(self.origin))
        return not is_made or (root / self.folder).is_dir()

    def _local(self, split: str) -> Path | None:
        base = Path(self.data_dir or "", self.folder)
        files = (base / f"{split}.jsonl", base / f"{split}.jsonl.gz")
        return next((file for file in files if file.is_file()), None)

    def _file(self, split: str) -> Path:
        if file := self._local(split):
            return file
        raise UserError(
            f"{Path(self.data_dir or '', self.folder, split)}.jsonl[.gz]: no such file. Put it "
            f"there, or give another data_dir=...{self._how}"
        )

    @property
    def _wanted(self) -> str:
        return f"DIR/{self.folder}/{{train,validation,test}}.jsonl[.gz].{self._how}"

    @property
    def _how(self) -> str:
        how = self.origin.get("how") if self.variant is None else None
        how = _FEWGLUE if self.variant == "fewglue" else how
        return f"\nHow to make it: {how}" if how else ""

    def _hub(self, split: str) -> Iterator[Row]:
        hub = self.origin["hub"]
        try:
            data = read_hub(self._on_hub, self.origin.get("subset"), split)
        except UserError as error:
            local = f"For local files type data_dir=DIR with {self._wanted}"
            raise UserError(f"task={self.name}: {error} {local}") from error
        rename: Mapping[str, str] = self.origin.get("rename", {})
        for row in _hub_rows(f"{hub}/{split}", data):
            fields = {key: value for key, value in row.data.items() if key not in rename}
            fields |= {new: row.value(old) for old, new in rename.items()}  # in place of another
            yield Row(row.where, fields)


def check_columns(wanted: Sequence[str], file: Any, columns: Sequence[str], more: str = "") -> None:
    """Refuse columns that a table does not have."""
    for name in wanted:
        if name not in columns:
            raise UserError(
                f"{file}: no column {shown(name)}{near(name, columns)}\nIts first line names the "
                f"columns: {names(columns)}{more}"
            )


class HubTable:
    """A split of a data set of the hub as the user's own table, as `ptrun.task.table.Table`."""

    def __init__(self, repository: Repository, subset: str | None, split: str):
        self._repository, self._subset, self._split = repository, subset, split
        self.file = f"{repository.name}/{split}"

    @cached_property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self._data.column_names)

    @property
    def found(self) -> str:
        """What the data set has, in a few words."""
        return f"a data set of the hub with splits {names(list(self._data.info.splits or {}))}"

    def rows(self, columns: Sequence[str]) -> Iterator[Row]:
        """Yield the rows in order, with classes by name."""
        self.check(columns)
        data = self._data.select_columns(list(columns))
        if not len(data):
            raise UserError(f"{self.file}: no rows.")
        return _hub_rows(self.file, data)

    def check(self, columns: Sequence[str]) -> None:
        """Refuse columns that the split does not have."""
        check_columns(columns, self.file, self.columns)

    def identity(self) -> str:
        """Return what identifies the rows: data set, subset, revision and split."""
        origin = {"hub": self._repository.name, "revision": self._repository.revision}
        return f"{self._split} {canonical({**origin, 'subset': self._subset})}"

    @cached_property
    def _data(self) -> Any:
        try:
            return read_hub(self._repository, self._subset, self._split)
        except UserError as error:
            said = str(error).replace("task.splits", "task.train=, dev= or test=")
            raise UserError(said) from error


def _hub_rows(place: str, data: Any) -> Iterator[Row]:
    """Yield the rows of a table of the `datasets` library; classes are read by name."""
    classes = {key: label_names(feature) for key, feature in data.features.items()}
    for index, row in enumerate(data):
        decoded = {key: class_name(value, classes[key]) for key, value in row.items()}
        yield Row(f"{place} row {index}", decoded)


def label_names(feature: Any) -> list[str] | None:
    """Return the class names of a feature of `datasets`: labels map by name, never by index."""
    while hasattr(feature, "feature"):  # a list of labels
        feature = feature.feature
    return getattr(feature, "names", None)


def class_name(value: Any, names: list[str] | None) -> Any:
    """Return the name of a class, or those of a list; another number, such as -1, stays."""
    if names is None:
        return value
    if isinstance(value, list):
        return [class_name(item, names) for item in value]
    return str(names[value]) if type(value) is int and 0 <= value < len(names) else value


# Read a split of a data set.
#
# The hub converts data sets to parquet on a branch of its own, with a folder for each subset. A
# script in a repository is never run.

_FILE = re.compile(r"([^/]+)/([^/]+)/\d{4}\.parquet")  # of that branch: subset, split


def read_hub(repository: Repository, subset: str | None, split: str) -> Any:
    """Return the rows of a split, as a table of the `datasets` library.

    The files of the wanted commit are downloaded into the hub's cache and read there. Without the
    hub they are used if they are complete.

    Raises:
        UserError: it cannot be read, has no such subset or split, or the hub has converted only a
            part of it.
    """
    if Path(name := repository.name).is_dir():  # `datasets` reads a folder of this name first
        if not name.startswith((".", "/")):
            raise UserError(
                f"{name}: the current folder has a folder of this name. Rename it, or type "
                f"{repository.group}.hub=./{name} to read it."
            )
        try:
            builder = _builder(repository, name, name=subset)
            builder.download_and_prepare()
        except (ValueError, OSError, RuntimeError) as error:
            raise UserError(f"{name}: cannot be read ({str(error)[:200]!r}).") from error
        return _split(repository, builder, split)
    trouble = repository.ask()
    status = answered_status(trouble) if trouble else None
    is_refused = status is not None and status < 500  # then a copy of another revision is no help
    if trouble and repository.recorded is None and is_refused:
        raise UserError(failure(repository, trouble)) from trouble
    from datasets.exceptions import DatasetsError
    from huggingface_hub.errors import HTTPError

    listing, folder = repository.listing(), repository.snapshot
    script = f"{repository.name.rpartition('/')[2]}.py"
    if not isinstance(listing, Exception) and script in listing:
        raise UserError(
            f"{repository.name}: {script} makes its rows, and ptrun runs no script.\nType "
            f"{repository.group}.revision={CONVERTED}, if the hub has converted it."
        )
    if isinstance(listing, Exception):
        listing = {file.relative_to(folder).as_posix(): None for file in folder.rglob("*")}
    options = _options(repository, {*listing}, subset, split)
    try:
        splits = _downloaded(repository, options) if trouble is None else _noted(repository, subset)
        if not splits:
            nothing = FileNotFoundError(f"commit {repository.wanted} has no files of rows")
            raise UserError(failure(repository, trouble or nothing))
        paths = {name: [str(folder / path) for path in paths] for name, paths in splits.items()}
        builder = _builder(repository, str(folder), name=options.get("name"), data_files=paths)
        builder.download_and_prepare()
    except (DatasetsError, HTTPError, OSError, ValueError, RuntimeError) as error:
        raise UserError(failure(repository, trouble or error)) from error
    repository.found(folder.name)
    return _split(repository, builder, split)


def _options(
    repository: Repository, paths: set[str], subset: str | None, split: str
) -> dict[str, str | None]:
    """Return how the library is told the subset: by name, or as a folder of the conversion."""
    subsets = {match[1] for match in map(_FILE.fullmatch, sorted(paths)) if match}
    if not subsets or "README.md" in paths:
        return {"name": subset}
    if subset not in subsets and (subset is not None or len(subsets) > 1):
        raise UserError(
            f"{repository.name}: no subset {subset} at {CONVERTED}; there are "
            f"{names(sorted(subsets))}.\nType {repository.group}.subset=NAME."
        )
    part = f"{subset or min(subsets)}/partial-{split}"
    if any(path.startswith(f"{part}/") for path in paths):
        raise UserError(
            f"{repository.name}: {CONVERTED} has only a part of the rows, {part}.\n"
            f"Type {repository.group}.hub= with a repository that has all."
        )
    return {"data_dir": subset} if subset else {"name": None}


def _split(repository: Repository, builder: Any, split: str) -> Any:
    """Return the rows of a split."""
    try:
        return builder.as_dataset(split=split)
    except ValueError as error:
        has = ", ".join(builder.info.splits or {})
        raise UserError(
            f"{repository.name}: no split {split!r}; it has {has}.\nType task.splits with one."
        ) from error


def _builder(repository: Repository, place: str, **options: Any) -> Any:
    """Return what reads a data set: of the hub, by its name, or a folder."""
    from datasets import load_dataset_builder

    try:
        return load_dataset_builder(place, revision=repository.wanted, **options)
    except ValueError as error:
        if "Config" not in str(error):
            raise
        raise UserError(
            f"{repository.name}: no subset {options['name']} ({' '.join(str(error).split())})\n"
            f"Type {repository.group}.subset=NAME."
        ) from error


def _downloaded(
    repository: Repository, options: Mapping[str, str | None]
) -> Mapping[str, Sequence[str]]:
    """Download a subset, return its paths by split, and note them when all are there."""
    from huggingface_hub import snapshot_download

    commit = repository.wanted
    home = f"hf://datasets/{repository.name}@{commit}/"
    files = _builder(repository, repository.name, **options).config.data_files or {}
    splits = {str(split): [path.removeprefix(home) for path in files[split]] for split in files}
    patterns = ["README.md", *(escape(path) for paths in splits.values() for path in paths)]
    snapshot_download(
        repository.name, repo_type="dataset", revision=commit, allow_patterns=patterns
    )
    subset = options.get("name") or options.get("data_dir")
    with suppress(OSError):  # a shared cache may be read-only
        _note(repository, subset).write_text(json.dumps(splits), encoding="utf-8")
    return splits


def _note(repository: Repository, subset: str | None) -> Path:
    """Return the file with the paths of a subset, which is written when all of them are there."""
    return repository.snapshot / f".ptrun-{(subset or '').replace('/', '-')}.json"


def _noted(repository: Repository, subset: str | None) -> Mapping[str, Sequence[str]]:
    """Return the paths of a subset by split; nothing if the cache lacks a file."""
    note = _note(repository, subset)
    splits: dict[str, list[str]] = read_json(note) if note.is_file() else {}
    paths = [path for files in splits.values() for path in files]
    return splits if all((repository.snapshot / path).is_file() for path in paths) else {}
