"""P-tuning v2 learns and answers each kind of task it is meant for, on each family."""

import pytest

from ptrun.config.build import build
from ptrun.method.ptuning_v2 import PTuningV2
from tests.composing import task_node
from tests.small_runs import engine, member
from tests.tiers import tiered

KINDS = ["bert", "roberta", "albert", "deberta", "deberta-v2", "gpt2", "llama", "t5"]
TASKS = ["rte", "multirc", "wsc", "copa", "record", "conll03", "srl_up_de", "squad", "squad_v2"]
ENCODER_ALONE = ("tagging", "extraction")


def task_of(data_dir, name):
    config = task_node(name)
    folder = data_dir / config["source"].get("folder", name)
    if not folder.is_dir():  # SuperGLUE's have a folder of their own
        folder.parent.mkdir(exist_ok=True)
        (data_dir / name).rename(folder)
    return build("task", config, str(data_dir))


def fits(task, answer, example):
    """Return whether an answer is one that the task has."""
    if task.kind == "tagging":
        return len(answer) == len(example.target) and set(answer) <= set(task.labels)
    if task.kind == "extraction":
        return answer in example.fields["context"]
    known = {"choice": range(2), "entity_choice": example.fields.get("entities")}
    return answer in known.get(task.kind, task.labels)


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("kind", tiered(KINDS, lambda kind: kind == "bert"))
def test_a_task_is_learned_and_answered(tiny, data_dir, kind, name):
    backbone, task = tiny(kind), task_of(data_dir, name)
    one = member(lambda b, t: PTuningV2(b, t, length=3), backbone, task, max_steps=2)
    before = one.method.prompt.table.detach().clone()
    fit = engine(backbone)
    fit.place([one.method])
    fit.fit([one])
    assert (one.method.prompt.table != before).any()
    examples = task.load("test")
    answers = fit.predict([one.method], [one.method.encode(examples)])[0]
    for answer, example in zip(answers, examples, strict=True):
        assert fits(task, answer.value, example)
    alone = kind != "t5" or task.kind in ENCODER_ALONE
    assert set(one.method.depth) == ({"encoder"} if alone else {"encoder", "decoder"})
