"""What imports of data share: checked fields, task files, folders that appear complete."""

import hashlib
import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from ptrun.config.compose import compose_run
from ptrun.config.paths import leads_out, options
from ptrun.errors import UserError, names, shown
from ptrun.hub.staging import check_new, progress, staging
from ptrun.task.lines import json_records
from ptrun.task.source import Account, Row
from ptrun.task.tag_schemes import iob2, marks_spans

# Writing of imported data: all folders of an import appear complete, or none does.

Record = Mapping[str, Any]


@dataclass(frozen=True)
class MadeFile:
    """A file to write.

    Args:
        folder, name: its place, `<out>/<folder>/<name>`; never taken from the data.
        sources: the files it is made from.
        rows: its rows, read from the sources on iteration; a text is written as it is.
    """

    folder: str
    name: str
    sources: Sequence[Path]
    rows: Iterable[Record | str]


def write(out: Path, files: Sequence[MadeFile], texts: Mapping[Path, str]) -> Iterator[str]:
    """Write files as JSON lines and yield one line of text about each, when all are in place.

    `texts` are new text files. They are written just before the folders appear: a command that was
    killed in between is typed again, and finds its own.
    """
    folders = list(dict.fromkeys(output.folder for output in files))
    for folder in folders:
        check_new(out / folder)
    nbytes = sum(file.stat().st_size for output in files for file in output.sources)
    with progress(nbytes) as advance, ExitStack() as stack:
        places = {f: stack.enter_context(staging(out / f, nbytes)) for f in folders}
        counts = [_written(file, places[file.folder] / file.name, advance) for file in files]
        write_new(
            {
                place: text
                for place, text in texts.items()
                if not (place.is_file() and place.read_bytes() == text.encode())
            }
        )
    for file, count in zip(files, counts, strict=True):
        yield f"{out / file.folder / file.name}: {count} row{'s' * (count != 1)}"


def _written(output: MadeFile, file: Path, advance: Callable[[int], None]) -> int:
    """Write one file and return the number of its rows."""
    count = 0
    with file.open("w", encoding="utf-8") as lines:
        for row in output.rows:
            text = row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) + "\n"
            lines.write(text)
            count += 1
    if not count:
        raise UserError(f"{output.sources[0]}: no examples in it.")
    advance(sum(source.stat().st_size for source in output.sources))
    return count


def write_new(files: Mapping[Path, str]) -> None:
    """Write text files that do not exist yet: all of them or, after an error, none."""
    if there := next((file for file in files if file.exists()), None):
        raise UserError(f"{there}: exists. Choose another name, or move the file away.")
    written: list[Path] = []
    try:
        for file, text in files.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("x", encoding="utf-8") as opened:
                written.append(file)
                opened.write(text)
    except OSError:
        for other in written:
            other.unlink(missing_ok=True)
        raise


# Checked parts of the rows that authors publish; every error has the file and the line.


def rows(file: Path) -> Iterator[Row]:
    """Yield the rows of a file of JSON: a list of objects, or one after another."""
    return (Row(where, data) for where, data in json_records(file))


def whole_number(row: Row, key: str) -> int:
    """Return a whole number of a row."""
    return row.typed(key, int, "a whole number")


def inner(row: Row, key: str) -> Row:
    """Return an object inside a row."""
    return Row(row.where, row.typed(key, dict, "an object"))


def each(row: Row, key: str) -> list[Row]:
    """Return the objects of a list inside a row."""
    values = row.typed(key, list, "objects")
    if not all(isinstance(value, dict) for value in values):
        raise row.wrong(key, "objects")
    return [Row(row.where, value) for value in values]


def label(row: Row, names: Sequence[Any]) -> int:
    """Return the index of the row's `label` among its published names."""
    raw = row.value("label")
    if raw not in names:
        raise row.wrong("label", f"one of {', '.join(map(repr, names))}")
    return list(names).index(raw)


# Words with tags as the files of a tagging task, known or new.


@dataclass(frozen=True)
class Words:
    """A sentence of a file.

    Args:
        where: its place for errors, or that of each word.
        tokens, tags: its words, and their tags as the file has them.
        predicate: the index of the word whose roles are the tags.
    """

    where: str | Sequence[str]
    tokens: list[str]
    tags: Sequence[str]
    predicate: int | None = None


def cut(where: str, tokens: list[str], tags: list[str], numbers: Sequence[Any]) -> Iterator[Words]:
    """Yield the sentences of a text, by the number of each word's; one inside a span goes on."""
    starts = [i for i in range(1, len(tags)) if numbers[i] != numbers[i - 1] and tags[i][0] != "I"]
    for start, stop in pairwise([0, *starts, len(tags)] if tags else []):
        yield Words(where, tokens[start:stop], tags[start:stop])


@dataclass(frozen=True)
class TaggingFields:
    """The folder, splits and fields of a tagging task; `entities` None allows any type.

    `of_spans` is whether tags mark spans; else they are labels of words.
    """

    folder: str
    splits: Mapping[str, str | None]
    tokens: str
    tags: str
    predicate: str | None = None
    entities: Sequence[str] | None = None
    of_spans: bool = True

    def record(self, words: Words) -> Record:
        """Return the row of a sentence, with IOB2 tags if they mark spans."""
        places = [words.where] * len(words.tags) if isinstance(words.where, str) else words.where
        for where, word, tag in zip(places, words.tokens, words.tags, strict=True):
            if not word or not tag:
                raise UserError(
                    f"{where}: a {'tag without a word' if tag else 'word without a tag'}."
                )
        if (words.predicate is None) != (self.predicate is None):
            roles = "roles of a predicate, but the task has none. Choose another --task."
            raise UserError(f"{places[0]}: {_ROLES if self.predicate else roles}")
        for where, tag in zip(places, words.tags, strict=True) if self.of_spans else ():
            if not marks_spans([tag]):
                raise UserError(
                    f"{where}: {shown(tag)} is no tag; expected O, B-TYPE, I-TYPE (or BIOES, "
                    "BILOU, BMES) or brackets such as (TYPE*).\nAnother column is --tags N."
                )
            if self.entities and tag != "O" and tag[2:] not in self.entities:
                raise UserError(
                    f"{where}: {shown(tag)} is of no type of the task: {names(self.entities)}. "
                    "Choose another column with --tags, or another --task."
                )
        tags = iob2(words.tags) if self.of_spans else list(words.tags)
        predicate = {self.predicate: words.predicate} if self.predicate else {}
        return {self.tokens: words.tokens, **predicate, self.tags: tags}


Read = Callable[[Path, Account], Iterator[Words]]
_LOG = logging.getLogger(__name__)
_SPLITS = {
    "train": {"train"},
    "dev": {"dev", "devel", "development", "valid", "validation", "testa"},
    "test": {"test", "testb"},
}
"""The words in the names of the files of each part."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_TYPO = 0.9  # a name that is so similar to that of a task, from 0 to 1, is one
_NEW = {"train": "train", "dev": "validation", "test": "test"}
_SHARE = 10  # one of so many texts goes to dev, and one to test
_ROLES = (
    "no |||. For files of columns name those of the roles, as in --words 4 --roles 12:-2 for "
    "CoNLL-2012."
)
_YAML = """\
# {what}, imported from {origin}.
_target_: ptrun.task.tagging.{kind}
name: {name}
version: 1                     # raise it when the {labels} change
source: {{folder: {name}}}       # DIR/{name}/*.jsonl, with data_dir=DIR
splits: {splits}
tokens: tokens
tags: {tags}
{labels}: {listed}
"""


def tagging_files(
    source: Path, read: Read, task: str, origin: str, files: str = "*", **chosen: Path | None
) -> tuple[list[MadeFile], dict[Path, str]]:
    """Return the files of a task, and the text of its options if it is new; rows are numbered.

    Args:
        source: a file, which is divided into train, dev and test by a hash of its words, or a
            folder with one file, or folder of `files`, for each. A folder of `files` without such
            names is divided too, by file if there are ten or more.
        read: reads a file; what it leaves out is counted, and printed in one line.
        task: an option of `task`, or the name of a new one, which may lack dev and test.
        origin: what the files are, for the options of a new task.
        files: a pattern of the names of files in a folder.
        chosen: the file or folder of train, dev or test, by part, if its name does not tell.
    """
    new = task not in options("task")

    def within(place: Path) -> list[Path]:
        return sorted(f for f in place.rglob(files) if f.is_file()) if place.is_dir() else [place]

    inside = within(source)
    try:
        fields = _fields(task)
    except UserError:
        for file in inside[:1]:  # what is wrong with the file comes first
            list(read(file, Account()))
        raise

    def sentences(place: Path, files: Sequence[Path]) -> list[list[Words]]:
        account = Account()
        blocks = [list(read(file, account)) for file in files]
        account.read = sum(map(len, blocks)) + account.left_out.total()
        if not any(blocks):
            raise UserError(f"{place}: no examples in it; {account}.")
        if account.left_out or account.noted:
            _LOG.warning("%s: %s", place, account)
        return blocks

    # 1) the sentences of each part
    made_of = {part: inside for part, split in fields.splits.items() if split is not None}
    named = {part: _named(source, part, files, chosen) for part in made_of}
    if not any(chosen.values()) and (source.is_file() or (inside and not any(named.values()))):
        parts = _divided(source, sentences(source, inside), list(made_of))
    else:
        parts = {}
        for part, entries in named.items():
            if len(entries) > 1 or (not entries and (part == "train" or not new)):
                problem = "several files" if entries else "no file"
                beside = entries or (sorted(source.iterdir()) if source.is_dir() else [])
                among = names(entry.name for entry in beside) or "no files"
                raise UserError(
                    f"{source}: {problem} for {part} among {among}; type --{part} FILE, or its "
                    f"folder of files {files}."
                )
            for place in entries:
                made_of[part] = within(place)
                if not made_of[part] or not all(file.is_file() for file in made_of[part]):
                    raise UserError(f"{place}: no such file, nor a folder of files {files}.")
                parts[part] = list(chain.from_iterable(sentences(place, made_of[part])))
    # 2) whether their tags mark spans
    if new:
        counts = Counter(tag for part in parts.values() for words in part for tag in words.tags)
        some = any(tag[1:] and marks_spans([tag]) for tag in counts)
        of_spans = some or marks_spans(counts) or max(counts, key=counts.__getitem__) == "O"
        if not of_spans:
            _LOG.warning("%s: no tag marks a span; %d labels of words", source, len(counts))
        fields = replace(fields, of_spans=of_spans, tags="ner_tags" if of_spans else "tags")
    # 3) their rows
    outputs, tags = [], set[str]()
    for part, every in parts.items():
        rows = [{"id": str(number), **fields.record(words)} for number, words in enumerate(every)]
        tags.update(tag for row in rows for tag in row[fields.tags])
        name = f"{fields.splits[part]}.jsonl"
        outputs.append(MadeFile(fields.folder, name, made_of[part], rows))
    file = Path(f"ptrun_conf/task/{task}.yaml")
    return outputs, {file: _yaml(fields, origin, [*parts], tags)} if new else {}


def _named(
    source: Path, part: str, files: str, chosen: Mapping[str, Path | None]
) -> Sequence[Path]:
    """Return the place that is typed, or the entries whose name has a word of the part."""
    if place := chosen.get(part):
        return [place]
    entries = sorted(source.iterdir()) if source.is_dir() else []
    named = [e for e in entries if _SPLITS[part] & set(re.split(r"[\W_]+", e.name.lower()))]
    return [e for e in named if e.is_dir() or e.match(files)] or named


def _fields(task: str) -> TaggingFields:
    """Return what the file of a task says, or the fields of a new task."""
    if task not in options("task"):
        if not _NAME.fullmatch(task):
            raise UserError(f"--task {task}: use letters, digits and _, such as --task my_names.")
        if close := get_close_matches(task, options("task"), 1, _TYPO):
            raise UserError(
                f"task={task}: unknown; did you mean {close[0]!r}? A new task needs another name."
            )
        return TaggingFields(task, _NEW, "tokens", "ner_tags")
    node = compose_run([f"task={task}"]).task
    if not {"tokens", "tags", "splits"} <= node.keys():
        raise UserError(f"--task {task}: no task of words and tags; conll03 is one.")
    folder = str((node.get("source") or {}).get("folder", node["name"]))
    splits: dict[str, str | None] = node["splits"]
    for name in (folder, *filter(None, splits.values())):
        if leads_out(name):
            raise UserError(f"--task {task}: {shown(name)} in its file leads out of --out.")
    fields = (node["tokens"], node["tags"], node.get("predicate"), node.get("entities"))
    return TaggingFields(folder, splits, *fields, not node["_target_"].endswith(".Tags"))


def _yaml(fields: TaggingFields, origin: str, parts: Sequence[str], tags: set[str]) -> str:
    """Return the options of a new task."""
    task, types = fields.folder, sorted(tags)
    if fields.of_spans:
        types = sorted({tag[2:] for tag in tags if tag != "O"})
        if not types:
            raise UserError(f"--task {task}: no text has a span, so there is no type to find.")
        for name in types:
            if name.startswith("B-") and f"I-{name[2:]}" in types:
                raise UserError(
                    f"--task {task}: types {name} and I-{name[2:]}; name the type of a span, "
                    f"{name[2:]}, without B- and I-."
                )
    splits = json.dumps({part: split if part in parts else None for part, split in _NEW.items()})
    spans = ("Names in texts", "Tagging", "entities")
    what, kind, labels = spans if fields.of_spans else ("Words with labels", "Tags", "labels")
    listed = json.dumps(types, ensure_ascii=False)
    texts = {"what": what, "kind": kind, "labels": labels, "listed": listed, "splits": splits}
    return _YAML.format(name=task, origin=origin, tags=fields.tags, **texts)


def _divided(
    source: Path, blocks: Sequence[list[Words]], parts: Sequence[str]
) -> dict[str, list[Words]]:
    """Divide sentences by a hash of their words: equal ones stay together in any order.

    The sentences of a file stay together too, if there are ten files or more.
    """
    if len(blocks) < _SHARE:
        blocks = [[words] for block in blocks for words in block]
    texts = ["\n".join(" ".join(words.tokens) for words in block) for block in blocks]
    keys = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
    order = sorted(set(keys))
    if len(order) < len(parts):
        raise UserError(
            f"{source}: {len(order)} different texts; expected at least {len(parts)}, for "
            f"{', '.join(parts)}."
        )
    size = max(1, len(order) // _SHARE)
    others = [part for part in parts if part != "train"]
    part_of = {key: others[i // size] for i, key in enumerate(order[: size * len(others)])}
    divided = {part: list[Words]() for part in parts}
    for key, block in zip(keys, blocks, strict=True):
        divided[part_of.get(key, "train")] += block
    return divided
