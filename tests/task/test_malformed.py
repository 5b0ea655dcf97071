"""Whatever a file holds: it is read, or there is one short error with its name and line."""

import json
from collections import Counter

import pytest

from ptrun.errors import UserError
from tests.task.malformed import KINDS, files_of, generator, lines_of, rows_of, spoilt

SPOILT = 5
COUNTS = {  # refused, read
    "classification": (39, 7),
    "regression": (36, 8),
    "choice": (40, 7),
    "tagging": (40, 8),
    "extraction": (41, 7),
    "multispan": (37, 9),
    "grouped": (38, 7),
    "entity_choice": (41, 8),
    "span_check": (46, 10),
    "facts": (41, 7),
}


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


def line_inputs(kind):
    """Yield a name, a file's content, the end of its name, and the line that is wrong."""
    rng, good = generator(kind.path), json.dumps(kind.row).encode()
    last = json.dumps(kind.row | ({"label": 0} if "label" in kind.row else {})).encode()
    right = b"\n".join([good, good, last])
    for name, row in rows_of(kind, rng):
        yield name, b"\n".join([good, json.dumps(row).encode(), last]), ".jsonl", 2
    for name, line in lines_of(kind.row, rng):
        yield name, b"\n".join([good, line, last]), ".jsonl", 2
    for name, content, ending in files_of(right, rng):
        yield name, content, f".jsonl{ending}", None
    yield from spoilt_inputs(right, ".jsonl", rng)


def spoilt_inputs(content, ending, rng):
    for i in range(SPOILT):
        yield f"spoilt {i}", spoilt(content, rng), ending, None


def of_kind(folder, kind):
    task = kind.make(folder.parent)
    return [task.labels, task.load("train")][1]


def tried(inputs, folder, load):
    """Return how each input ended, by its name."""
    found = []
    folder.mkdir()
    for name, content, ending, line in inputs:
        file = folder / f"train{ending}"
        file.write_bytes(content)
        found.append((name, outcome(lambda file=file: load(file), file, line)))
        file.unlink()
    return found


@pytest.mark.parametrize("name", KINDS)
def test_lines_of_each_kind_are_read_or_refused(name, tmp_path):
    kind = KINDS[name]
    found = tried(line_inputs(kind), tmp_path / "t", lambda file: of_kind(file.parent, kind))
    check(name, found)


def check(name, found):
    count = Counter(how for _, how in found)
    assert (count["refused"], count["read"]) == COUNTS[name], found


def test_more_than_two_hundred_inputs_are_refused():
    assert sum(refused for refused, _ in COUNTS.values()) > 200
