"""Shards: complete or not there, and a damaged one counts as missing."""

import errno

import pytest

from ptrun.papers.labelled import RowShards

ROWS = [{"split": "train", "text": "good"}, {"split": "test", "text": "bad"}]


@pytest.fixture
def shards(tmp_path):
    made = RowShards(tmp_path / "labels")
    for number in range(3):
        made.write(number, 16, ROWS)
    return made


def files(shards):
    return sorted(shards.folder.glob("0*"))


def test_rows_and_heads_come_back(shards):
    assert list(shards.rows()) == ROWS * 3
    heads = list(shards.heads())
    assert [head["lines"] for head in heads] == [16] * 3
    assert heads[0]["kept"] == {"train": 1, "test": 1}


@pytest.mark.parametrize("place", [2, 400, -3, -30])
def test_a_changed_byte_ends_the_files_until_it_is_made_again(shards, caplog, place):
    file = files(shards)[1]
    content = bytearray(file.read_bytes())
    content[place] ^= 4
    file.write_bytes(content)
    assert len(list(shards.heads())) == 1 and len(list(shards.rows())) == 2
    shards.write(1, 16, ROWS)
    assert caplog.text.count("000001.arrow: damaged; it is made again") == 1
    assert len(list(shards.heads())) == 3


@pytest.mark.parametrize("size", [0, 10, 64, 400])
def test_a_cut_file_counts_as_missing(shards, size):
    file = files(shards)[2]
    assert size < file.stat().st_size
    file.write_bytes(file.read_bytes()[:size])
    assert len(list(shards.heads())) == 2


def test_a_full_disk_is_named_and_leaves_no_draft(shards, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("ptrun.files.os.fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: .*000003\.arrow"):
        shards.write(3, 16, ROWS)
    assert [file.name for file in files(shards)] == [f"00000{n}.arrow" for n in range(3)]
