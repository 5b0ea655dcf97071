"""A file of rows: the same rows back, complete or absent, and no memory for those not read."""

import logging
import multiprocessing
import os
import sys
from collections import deque
from pathlib import Path

import datasets
import pytest

from ptrun.task.stored import _DIGEST, Stored, _write, code_of, stored
from ptrun.types import Example

ROWS = [Example(f"é-{n}", {"text": f"电影 {n}\n", "list": ["a", "b"]}, n) for n in range(2_500)]


def example(row):
    return Example(**row)


def test_rows_come_back_by_index_in_slices_and_in_order(tmp_path):
    rows = stored(tmp_path / "rows.arrow", lambda: ROWS, example)
    assert len(rows) == len(ROWS) and list(rows) == ROWS
    assert rows[1_024] == ROWS[1_024] and rows[-1] == ROWS[-1]
    assert rows[5:2_000:700] == ROWS[5:2_000:700]
    with pytest.raises(IndexError):
        rows[len(ROWS)]


def test_a_file_is_written_once_and_datasets_opens_it(tmp_path):
    file = tmp_path / "new" / "rows.arrow"
    stored(file, lambda: ROWS[:3], example)
    assert list(stored(file, lambda: pytest.fail("written again"), example)) == ROWS[:3]
    assert len(datasets.Dataset.from_file(str(file))) == 3


def test_an_interrupted_file_is_written_again(tmp_path):
    file = tmp_path / "rows.arrow"

    def interrupted():
        yield from ROWS[:2_000]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stored(file, interrupted, example)
    assert not file.exists()
    assert list(stored(file, lambda: ROWS, example)) == ROWS


def flipped(content, place):
    return content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :]


DAMAGES = {
    "a bit of a row": lambda content: flipped(content, len(content) // 2),
    "a bit of the hash": lambda content: flipped(content, len(content) - 5),
    "a cut": lambda content: content[: len(content) // 2],
    "a cut in the end": lambda content: content[:-10],
    "an older version": lambda content: content[:-_DIGEST],
    "nothing": lambda content: b"",
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_file_is_made_again_with_a_word(tmp_path, caplog, monkeypatch, name):
    monkeypatch.setattr(logging.getLogger("ptrun"), "propagate", True)
    file = tmp_path / "rows.arrow"
    stored(file, lambda: ROWS, example)
    whole = file.read_bytes()
    file.write_bytes(DAMAGES[name](whole))
    os.utime(file, (1, 1))  # a coarse clock may give both the same time
    assert list(stored(file, lambda: ROWS, example)) == ROWS and file.read_bytes() == whole
    assert [own.getMessage() for own in caplog.records] == [f"{file}: damaged; it is made again"]


@pytest.mark.slow
def test_processes_that_write_at_once_make_one_file(tmp_path):
    """The second waits for the first and reads its file."""
    file, spawned = tmp_path / "rows.arrow", multiprocessing.get_context("spawn")
    others = [spawned.Process(target=_store, args=(file, tmp_path / str(n))) for n in range(2)]
    for other in others:
        other.start()
    for other in others:
        other.join()
    assert [other.exitcode for other in others] == [0, 0]
    assert sum((tmp_path / str(n)).exists() for n in range(2)) == 1
    assert list(Stored(file, example)) == ROWS


def _store(file, written):
    def rows():
        written.touch()
        yield from ROWS

    assert len(stored(file, rows, example)) == len(ROWS)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux: reads /proc")
@pytest.mark.slow
def test_pages_that_were_read_do_not_stay_in_memory(tmp_path):
    """100,000 rows are 20 MB; those of 256 rows stay."""
    file = tmp_path / "rows.arrow"
    _write(file, (f"{n:200}" for n in range(100_000)))
    rows = Stored(file, str)
    deque(rows, maxlen=0)
    assert file.stat().st_size > 20e6 and 0 < _resident(file) < 1e6


def _resident(file):
    """Return the bytes of a mapped file that are in memory."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    for line in lines:
        if line.endswith(str(file)):
            return next(1024 * int(own.split()[1]) for own in lines if own.startswith("Rss:"))
    return None


def test_other_code_has_another_hash(tmp_path):
    for number, name in enumerate(["a.py", "sub/b.py", "words.toml"]):
        before = code_of(tmp_path)
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"x = {number}")
        code_of.cache_clear()
        assert code_of(tmp_path) != before


def test_a_planted_link_is_replaced(tmp_path):
    outside, file = tmp_path / "outside", tmp_path / "rows.arrow"
    outside.write_text("kept")
    file.symlink_to(outside)
    assert list(stored(file, lambda: ROWS[:2], example)) == ROWS[:2]
    assert outside.read_text() == "kept" and not file.is_symlink()
