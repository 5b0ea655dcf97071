"""Whatever a file holds: it is read, or there is one short error with its name and line."""

import json

import pytest

from ptrun.errors import UserError
from tests.task.malformed import KINDS, files_of, generator, lines_of, rows_of, spoilt

SPOILT = 5
READ = {"10 MB of text", "10 MB key", "deep", "CRLF", "blank", "BOM", "gzip", "gzip unannounced"}
READ |= {f"spoilt {i}" for i in range(SPOILT)}
"""What is well-formed after all, or may be."""


def outcome(load, file, line=None):
    """Return `read`, or `refused` after a look at the message."""
    try:
        for example in load():
            json.dumps([example.fields, str(example.target)], ensure_ascii=False).encode("utf-8")
    except UserError as error:
        told = str(error)
        assert str(file) in told, told[:500]
        assert line is None or f"{file}:{line}:" in told, told[:500]
        assert len(told.splitlines()) <= 3, told[:500]
        assert len(told.replace(str(file), "")) < 500, told[:900]
        return "refused"
    return "read"


def tried(inputs, folder, load):
    """Return how each file ended, by its name."""
    found = {}
    folder.mkdir()
    for name, content, ending, line in inputs:
        file = folder / f"train{ending}"
        file.write_bytes(content)
        found[name] = outcome(lambda file=file: load(file), file, line)
        file.unlink()
    return found


def of_kind(folder, kind):
    task = kind.make(folder.parent)
    return [task.labels, task.load("train")][1]


def between(kind, line):
    """Return a file whose second line may be wrong."""
    last = kind.row | ({"label": 0} if "label" in kind.row else {})
    return b"\n".join([json.dumps(kind.row).encode(), line, json.dumps(last).encode()])


@pytest.mark.parametrize("name", KINDS)
def test_rows_of_each_kind_are_read_or_refused(name, tmp_path):
    kind = KINDS[name]
    rows = rows_of(kind, generator(kind.path))
    inputs = [(n, between(kind, json.dumps(row).encode()), ".jsonl", 2) for n, row in rows]
    found = tried(inputs, tmp_path / "t", lambda file: of_kind(file.parent, kind))
    assert all(how == "refused" for n, how in found.items() if n.startswith(("wrong", "without")))


def test_lines_and_files_are_read_or_refused(tmp_path):
    kind = KINDS["classification"]
    rng, right = generator(kind.path), between(kind, json.dumps(kind.row).encode())
    inputs = [(n, between(kind, line), ".jsonl", 2) for n, line in lines_of(kind.row, rng)]
    inputs += [(n, content, f".jsonl{end}", None) for n, content, end in files_of(right, rng)]
    inputs += [(f"spoilt {i}", spoilt(right, rng), ".jsonl", None) for i in range(SPOILT)]
    found = tried(inputs, tmp_path / "t", lambda file: of_kind(file.parent, kind))
    assert {n for n, how in found.items() if how == "read"} <= READ, found
