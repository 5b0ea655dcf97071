"""`result.json`: an edited or damaged one is named and never counted."""

import json

import pytest

from ptrun.errors import UserError
from ptrun.folder import result
from tests.runs.test_store import outcome


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"event": "step"}\n')
    result.write(tmp_path, outcome(config={"task": {"words": {1: "one", 10: "ten", 2: "two"}}}))
    return tmp_path


def changed(folder, change):
    file = folder / "result.json"
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content, indent=1))


def test_what_was_written_is_read_in_any_layout(folder):
    before = result.read(folder)
    changed(folder, lambda content: None)
    assert result.read(folder) == before and before.files.keys() == {"metrics.jsonl"}


def test_an_edited_score_is_noticed(folder):
    changed(folder, lambda content: content["metrics"]["test"].update(f1=95.0))
    with pytest.raises(UserError, match=r"result.json: damaged \(edited: its digest is another\)"):
        result.read(folder)
    results, damaged = result.read_all(folder)
    assert results == {} and "result.json" in damaged[0]


LOST = {
    "test": lambda content: content["metrics"].pop("test"),
    "f1": lambda content: (
        content["metrics"]["test"].pop("f1") and content["metrics"]["test"].update(x=1)
    ),
    "total": lambda content: content["learned_parameters"].pop("total"),
    "status": lambda content: content.update(status="odd"),
}


@pytest.mark.parametrize("name", LOST)
def test_a_result_of_an_older_version_without_its_numbers_is_refused(folder, name):
    def change(content):
        del content["digest"]
        LOST[name](content)

    changed(folder, change)
    with pytest.raises(UserError, match=rf"result.json: damaged \(.*{name}"):
        result.read(folder)


@pytest.mark.parametrize("text", ["", "[1]", "[" * 100_000, '{"metrics": 3}', "null"])
def test_what_is_no_result_is_refused(folder, text):
    (folder / "result.json").write_text(text)
    with pytest.raises(UserError, match=r"result.json: damaged .*Delete it to run again"):
        result.read(folder)


def test_a_file_beside_the_result_is_checked(folder):
    done = result.read(folder)
    result.check_beside(done, folder / "metrics.jsonl")
    (folder / "metrics.jsonl").write_text('{"event": "stop"}\n')
    with pytest.raises(UserError, match=r"metrics.jsonl: damaged or edited"):
        result.check_beside(done, folder / "metrics.jsonl")
