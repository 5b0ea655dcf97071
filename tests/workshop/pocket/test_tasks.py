"""The generator makes exactly the rows that the package ships."""

import gzip
from time import process_time

import pytest

from ptrun.pocket import corpus as shipped
from ptrun.pocket.tasks import SPLITS, TASKS, file_of, rows
from workshop.pocket import __main__ as command
from workshop.pocket.__main__ import packed
from workshop.pocket.corpus import documents
from workshop.pocket.tasks import MADE
from workshop.pocket.world import world


@pytest.mark.parametrize("task", TASKS)
def test_the_shipped_rows_are_those_that_are_made(task):
    """Also key by key, in order, with the types of the values; each task within three seconds."""
    world()
    start = process_time()
    made = MADE[task]()
    assert process_time() - start < 3
    assert tuple(made) == SPLITS
    for split in SPLITS:
        assert repr(rows(task, split)) == repr(made[split]), split


def test_every_task_and_no_other_is_shipped():
    assert tuple(MADE) == TASKS
    folder = file_of("pocket_ner", "train").parents[1]
    shipped = {file_of(task, split) for task in TASKS for split in SPLITS}
    assert {file for file in folder.rglob("*") if file.is_file()} == shipped
    assert sum(file.stat().st_size for file in shipped) <= 2_000_000


@pytest.mark.slow
def test_the_command_writes_what_has_changed(tmp_path, monkeypatch, capsys):
    made = {"train": [{"id": "train-0", "text": "Zoë\nran."}]}
    monkeypatch.setattr("sys.argv", ["workshop.pocket"])
    monkeypatch.setattr(command, "MADE", {"pocket_ner": lambda: made})
    monkeypatch.setattr(command, "file_of", lambda task, split: tmp_path / task / f"{split}.gz")
    monkeypatch.setattr(command, "rows", lambda task, split: made[split])
    command.main()
    file = tmp_path / "pocket_ner" / "train.gz"
    written = file.read_bytes()
    assert gzip.decompress(written).decode() == '{"id": "train-0", "text": "Zoë\\nran."}\n'
    assert written[4:8] == bytes(4), "the time of writing"
    assert "1 rows" in capsys.readouterr().out
    file.write_text("kept")
    command.main()
    assert file.read_text() == "kept" and not capsys.readouterr().out


@pytest.mark.slow
def test_the_shipped_corpus_is_the_one_that_is_made_and_names_no_hidden_entity():
    made = list(documents("train"))
    assert list(shipped.documents()) == made
    hidden = [e.name for e in world().by_kind["person"] if e.hidden]
    text = "\n".join(sentence for document in made for sentence in document)
    assert hidden and not any(name in text for name in hidden)


def test_a_packed_corpus_is_read_back(monkeypatch, tmp_path):
    written = [["The  film\tof 1984 was it's.", "“Ça” va?"], ["One."]]
    (tmp_path / "corpus.bz2").write_bytes(packed(written))
    monkeypatch.setattr(shipped, "FILE", tmp_path / "corpus.bz2")
    assert list(shipped.documents()) == written
