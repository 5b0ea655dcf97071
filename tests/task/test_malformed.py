"""A wrong row is refused with its file and line; any other row: `tests/fuzz/test_json.py`."""

import gzip
import json

import pytest

from ptrun.errors import UserError
from tests.task.malformed import KINDS

RIGHT = KINDS["classification"]
GOOD = json.dumps(RIGHT.row)[:-1]
LINES = {
    "10 MB of brackets": b"[" * 10_000_000,
    "deeper": f'{GOOD}, "note": {"[" * 9000}{"]" * 9000}}}'.encode(),
    "no number": f'{GOOD}, "note": NaN}}'.encode(),
    "too large": f'{GOOD}, "note": 1e999}}'.encode(),
    "huge integer": f'{GOOD}, "note": {"9" * 5000}}}'.encode(),
    "surrogate": (GOOD + ', "note": "\\ud83d"}').encode(),
    "key twice": f'{GOOD}, "note": 1, "note": 2}}'.encode(),
    "CP1252": f'{GOOD}, "note": "caf\u00e9"}}'.encode("cp1252"),
    "UTF-16": (GOOD + "}").encode("utf-16"),
    "scalar": b"12",
    "two objects": f"{GOOD}}}{GOOD}}}".encode(),
}


def told_of(folder, kind, line, packed=False):
    """Return the refusal of a file whose second line is wrong."""
    (folder / "t").mkdir()
    file = folder / "t" / f"train.jsonl{'.gz' * packed}"
    content = b"\n".join([json.dumps(kind.row).encode(), line])
    file.write_bytes(gzip.compress(content)[:-9] if packed else content)
    task = kind.make(folder)
    with pytest.raises(UserError) as raised:
        task.load("train")
    told = str(raised.value)
    assert str(file) in told and len(told.replace(str(file), "")) < 500
    return told


@pytest.mark.parametrize("name", KINDS)
def test_wrong_rows_of_each_kind_are_refused(name, tmp_path):
    kind = KINDS[name]
    lost = [{k: v for k, v in kind.row.items() if k != field} for field in kind.row]
    for number, row in enumerate([*({**kind.row, **w} for w in kind.wrong), *lost]):
        (folder := tmp_path / str(number)).mkdir()
        assert "train.jsonl:2:" in told_of(folder, kind, json.dumps(row).encode())


@pytest.mark.parametrize("name", LINES)
def test_a_line_that_is_no_row_is_refused(name, tmp_path):
    assert "train.jsonl:2:" in told_of(tmp_path, RIGHT, LINES[name])


def test_a_cut_file_is_refused(tmp_path):
    assert "pack it again" in told_of(tmp_path, RIGHT, b"", packed=True)
