"""JSON lines: what json writes is read back, and other bytes are refused as json refuses them."""

import json

from hypothesis import example, given
from hypothesis import strategies as st

from ptrun.task.lines import json_file, json_lines, json_records
from tests.fuzz.strategies import OBJECTS, read_or_refused, spoilt
from tests.task.malformed import KINDS

MADE = st.lists(OBJECTS, min_size=1, max_size=4)


def plain(content):
    return json.dumps(content, ensure_ascii=False, allow_nan=False)


def read(file):
    return [row for _, row in json_lines(file)]


def records(file):
    return [row for _, row in json_records(file)]


@given(MADE, st.sampled_from(["\n", "\r\n", "\n\n"]))
@example([{"a": "\u2028\x85"}], "\n")
def test_what_json_writes_is_read_back(place, objects, end):
    file = place / "o.jsonl"
    file.write_bytes(end.join(map(plain, objects)).encode())
    assert read(file) == objects
    file.write_text(json.dumps(objects, indent=2))
    assert records(file) == objects
    file.write_text(json.dumps(objects[0], indent=2))
    assert json_file(file) == objects[0]


@given(spoilt(MADE.map(plain).map(str.encode)) | st.binary(max_size=40))
@example(b'{"a": 1, "a": 2}')
@example(b'{"a": "\\ud800"}')
@example(b'{"a": ' + b"9" * 5000 + b"}")
@example(b"[" * 100_000)
@example(b"\xef\xbb\xbf{}")
def test_any_bytes_are_read_or_refused(place, content):
    file = place / "o.jsonl"
    file.write_bytes(content)
    for reader in (read, json_file, records):
        found = read_or_refused(reader, file)
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode("utf-8")
    if (rows := read_or_refused(read, file)) is not None:
        lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
        assert rows == [json.loads(line) for line in lines if line.decode().strip()]


@st.composite
def task_rows(draw):
    """Draw a kind of task and a row of it with one field changed, added or lost."""
    kind = draw(st.sampled_from(sorted(KINDS)))
    row = dict(KINDS[kind].row)
    field = draw(st.sampled_from([*sorted(row), "id"]))
    changed = draw(st.sampled_from(["lost", "other"]))
    row.pop(field, None)
    return kind, row if changed == "lost" else {**row, field: draw(OBJECTS.map(first))}


def first(content):
    return next(iter(content.values()), None)


@given(task_rows())
@example(("facts", {**KINDS["facts"].row, "predicate_id": "../../x"}))
@example(("extraction", {**KINDS["extraction"].row, "answers": {"text": [], "answer_start": [1]}}))
def test_any_row_of_a_task_is_read_or_refused(place, drawn):
    kind, row = drawn
    (place / "t").mkdir(exist_ok=True)
    (place / "t" / "train.jsonl").write_text(plain(row) + "\n")
    task = KINDS[kind].make(place)
    for found in read_or_refused(task.load, "train") or ():
        json.dumps([found.id, dict(found.fields)], ensure_ascii=False, default=vars).encode()
