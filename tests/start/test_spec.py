"""What `start=` may say, how it enters a run's identity, and what is refused before loading."""

from pathlib import Path

import pytest

from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.runs.plan import plan
from ptrun.start.spec import parse, recorded

GPT = "backbone=pocket_gpt2"
SOFT = ["method=prompt_tuning", "task=pocket_sentiment"]


TOLD = {None: "random", "random": "random", "normal": "normal:0.02", "normal:0.5": "normal:0.5"}
TOLD |= {
    "uniform": "uniform:0.5",
    "identical": "identical:0.1",
    "task_words": "task_words",
    "zero": "zero",
}
TOLD |= {"identical:0.001": "identical:0.001", "text: good: or bad ": "text:good: or bad"}


@pytest.mark.parametrize(("text", "told"), TOLD.items())
def test_a_start_is_told_in_one_way(text, told):
    assert str(parse(text)) == told


WRONG = {
    "vocabluary": r"start=vocabluary: unknown; did you mean 'vocabulary'\? Allowed",
    "text:": "start=text:: give words after the colon, start=text:...",
    "run: ": "give a run id or a run's folder after the colon, start=run:...",
    "labels:good": "start=labels:good: labels takes no value; type start=labels.",
    "normal:wide": "start=normal:wide: give a number above 0, such as start=normal:0.02",
    "uniform:-1": "start=uniform:-1: give a number above 0",
    "identical:0": "start=identical:0: give a number above 0",
    "zero:1": "start=zero:1: zero takes no value; type start=zero",
    "normal:": "start=normal:: give a number above 0",
}


@pytest.mark.parametrize(("text", "message"), WRONG.items())
def test_a_wrong_start_is_explained(text, message):
    with pytest.raises(UserError, match=message):
        parse(text)


def planned(*overrides):
    return plan(compose_run([*SOFT, *overrides]))


NO_VECTORS = ["method=ptuning_v2 start=labels", "method=ptuning start=vocabulary"]
NO_VECTORS += ["method=ptuning method.encoder=mlp start=text:good"]
NO_VECTORS += ["method=fine_tuning start=task_words", "method=manual_prompt start=normal"]
NO_VECTORS += ["method=ptuning_v2 method.reparameterization=mlp start=zero"]


@pytest.mark.parametrize("typed", NO_VECTORS)
def test_words_and_random_vectors_need_a_method_that_learns_input_vectors(typed):
    with pytest.raises(UserError, match=r"configured learns no input vectors\. Use start=random"):
        planned(*typed.split())


def test_the_plain_encoder_of_ptuning_learns_input_vectors():
    assert planned("method=ptuning", "method.encoder=plain", "start=labels").start.kind == "labels"


def test_labels_are_refused_where_a_task_has_none():
    with pytest.raises(UserError, match="start=labels: task=pocket_facts has no labels"):
        planned("task=pocket_facts", "readout=verbalizer", "start=labels")


@pytest.mark.slow
def test_a_start_enters_the_identity_of_a_run():
    starts = ["labels", "text:good film", "text:good plot", "normal", "normal:0.5"]
    ids = [planned(f"start={start}").run_id for start in starts]
    assert len({*ids, planned().run_id}) == 6
    assert planned("start=random").run_id == planned().run_id
    assert planned("start=normal:0.02").run_id == ids[3]


def test_a_text_is_recorded_as_a_run_does(tmp_path):
    (tmp_path / "told.txt").write_text("a text\n")
    start = planned("method=ptuning_v2", "task=pocket_writing", "start=context:a text", GPT).start
    assert recorded("context:a text") == recorded(f"context:@{tmp_path / 'told.txt'}") == str(start)


def test_words_with_spaces_and_paths_can_be_typed():
    assert compose_run(["start=text:good film"]).config["start"] == "text:good film"
    assert compose_run(['start="text:good, bad"']).config["start"] == "text:good, bad"
    given = f"run:{Path('outputs/runs/a-b-s1-0f')}"
    assert compose_run([f"start={given}"]).config["start"] == given
