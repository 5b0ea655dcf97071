"""Several data sets as one task: examples keep their set, scores are each set's own."""

import pytest

from ptrun.config.build import build, check
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.task.multi import Multi, member_of
from ptrun.task.protocol import Honest, Paper
from ptrun.types import Prediction
from tests.composing import task_node
from tests.small_runs import conll03, sst2


def both(data_dir):
    tasks = {"sst2": sst2(data_dir), "conll03": conll03(data_dir)}
    return Multi(None, name="both", version=1, tasks=tasks)


def test_examples_of_all_sets_are_told_apart_by_their_ids(data_dir):
    task = both(data_dir)
    owners = [member_of(example) for example in task.load("train")]
    assert owners == ["sst2"] * 6 + ["conll03"] * 6
    assert len({example.id for example in task.load("train")}) == 12


def test_the_mean_of_the_sets_metrics_selects(data_dir):
    task = both(data_dir)
    examples = task.load("test")
    gold = [Prediction(e.id, e.target) for e in examples]
    assert task.score(gold, examples)["mean"] == 100
    half = [Prediction(e.id, e.target if member_of(e) == "sst2" else []) for e in examples]
    half = [
        Prediction(p.id, ["O"] * len(e.target) if member_of(e) != "sst2" else p.value)
        for p, e in zip(half, examples, strict=True)
    ]
    scores = task.score(half, examples)
    assert (scores["sst2_accuracy"], scores["conll03_f1"], scores["mean"]) == (100, 0, 50)


def test_data_of_any_set_change_the_digest(data_dir):
    before = both(data_dir).digest()
    file = data_dir / "conll03" / "train.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    assert both(data_dir).digest() != before


@pytest.mark.parametrize("protocol", [Honest(), Paper()])
def test_each_set_is_split_as_it_is_alone(data_dir, protocol):
    """Else a joint prompt has seen what a run that starts from it reports."""
    task = both(data_dir)
    task.tasks["sst2"]._splits = {"train": "train", "dev": None, "test": None}
    if isinstance(protocol, Paper):
        task.tasks["sst2"]._splits = {"train": "train", "dev": "validation", "test": None}
    whole = protocol.split(task, 3)
    for name, own in task.tasks.items():
        alone = protocol.split(own, 3)
        for part in ("train", "dev", "test"):
            ids = [e.id for e in getattr(whole, part) if member_of(e) == name]
            assert ids == [f"{name}:{e.id}" for e in getattr(alone, part)] != []
    assert whole.origin["test"].startswith("sst2: ") and "; conll03: " in whole.origin["test"]


def test_one_set_is_refused(data_dir):
    with pytest.raises(UserError, match="two or more names without"):
        Multi(None, name="one", version=1, tasks={"sst2": sst2(data_dir)})


@pytest.mark.parametrize("name", ["multi_ner", "multi_srl", "multi_qa", "pocket_multi"])
def test_a_file_of_several_tasks_builds_them_all(name):
    node = task_node(name)
    check({"task": node})
    task = build("task", node, None, None)
    assert task.name == name and len(task.tasks) == len(node["tasks"]) >= 2
    assert all(own.name == given for given, own in task.tasks.items())


def test_a_wrong_key_of_an_inner_task_is_named():
    with pytest.raises(UserError, match=r"task\.tasks\.pocket_ner\.tokenz"):
        node = compose_run(["task=pocket_multi", "task.tasks.pocket_ner.tokenz=1"]).config["task"]
        check({"task": node})
