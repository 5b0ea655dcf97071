"""What predictions read of a run that somebody else may have written."""

import dataclasses

import pytest

from ptrun.errors import UserError
from ptrun.folder.digest import DAMAGES, packed, unpacked
from ptrun.runs.finished import _check_recorded, _restore, backbone_of
from ptrun.types import RunResult

DONE = RunResult("r", "g", "finished", {}, 1, "f1", {}, {}, {}, {}, None)


ODD_HEADERS = [[], 5, "text", {}, {"labels": 5}, {"labels": [{"a": 1}]}, {"tasks": [1]}]
ODD_HEADERS += [{"labels": ["a"], "pvps": [1]}, {"tasks": {"a": {"labels": None}}}]


@pytest.mark.parametrize("found", ODD_HEADERS)
def test_a_header_of_another_form_is_damaged(found):
    with pytest.raises(DAMAGES):
        _check_recorded(found)
    _check_recorded({"tasks": {"a": {"labels": ["x"], "pvps": {}}}})


def test_labels_of_another_task_are_refused(pocket_task):
    with pytest.raises(UserError, match="its labels are not those of task=pocket_sentiment"):
        _restore(pocket_task, {"labels": ["other", "words"]})
    _restore(pocket_task, {"labels": list(reversed(pocket_task.labels))})


@pytest.fixture
def pocket_task():
    from ptrun.config.compose import compose_run

    return compose_run(["task=pocket_sentiment"]).components()["task"].build(None, None)


NAMED = {"backbone": {"name": "a"}}
ODD = {
    "no backbone": ({}, {"backbone": {}}),
    "a text": ({"backbone": "bert"}, {"backbone": {}}),
    "no name": ({"backbone": {"weights": "x"}}, {"backbone": {}}),
    "a path that is a list": ({"backbone": {"name": "a", "path": [1]}}, {"backbone": {}}),
    "a seed that is a text": ({"backbone": {"name": "a", "pooler_seed": "1"}}, {"backbone": {}}),
    "no configuration": (NAMED, {}),
    "a list as configuration": (NAMED, {"backbone": []}),
}


@pytest.mark.parametrize("name", ODD)
def test_a_result_without_its_backbone_is_damaged(name):
    manifest, config = ODD[name]
    done = dataclasses.replace(DONE, manifest=manifest, config=config)
    with pytest.raises(UserError, match=r"r: damaged \(its result.json names no backbone\)"):
        backbone_of(done)


@pytest.mark.parametrize("header", ['["a"]', '{"state": 5}', "[" * 100_000, "5"])
def test_the_header_of_a_file_of_tensors_is_text_by_name(header):
    assert unpacked(packed({"a": "b"})) == {"a": "b"}
    with pytest.raises((ValueError, TypeError)):
        unpacked({"ptrun": header})
