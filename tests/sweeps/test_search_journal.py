"""The journal of a study: a damaged one is set aside, a cut one goes on from what it has."""

import pytest
from optuna.storages.journal import JournalFileBackend

from ptrun.sweeps.search import StudyJournal

LOGS = [
    {"op_code": n, "worker_id": "w", "value": 0.1 * n, "params": {"lr": 1e-4}} for n in range(5)
]


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "study.journal"
    StudyJournal(file).append_logs(LOGS)
    return file


def read(backend):
    return [{k: v for k, v in log.items() if k != "digest"} for log in backend.read_logs(0)]


def test_what_was_written_comes_back_and_optuna_reads_it(file):
    assert read(StudyJournal(file)) == LOGS == read(JournalFileBackend(str(file)))


@pytest.mark.parametrize("place", [5, 60, 150, -20])
@pytest.mark.parametrize("bit", [0, 4, 7])
def test_a_damaged_journal_is_named_and_set_aside(file, caplog, place, bit):
    content = bytearray(file.read_bytes())
    content[place] ^= 1 << bit
    file.write_bytes(content)
    assert read(StudyJournal(file)) == []
    assert f"{file}: damaged (" in caplog.text and "made again" in caplog.text
    assert file.with_name("study.journal~").read_bytes() == bytes(content)


@pytest.mark.parametrize("cut", [1, 30])
def test_a_last_line_that_was_cut_is_removed_before_more_is_written(file, cut):
    file.write_bytes(file.read_bytes()[:-cut])
    own = StudyJournal(file)
    own.append_logs(LOGS[-1:])
    assert read(own) == LOGS and read(StudyJournal(file)) == LOGS
    file.write_bytes(file.read_bytes()[:10])
    assert read(StudyJournal(file)) == [] and file.stat().st_size == 0
