"""A configuration goes to another process whole, and in its order."""

import pytest

from ptrun.config.compose import compose_run
from ptrun.hardware import processes
from ptrun.runs.plan import plan


@pytest.mark.parametrize("task", ["pocket_topics", "cb", "lama"])
def test_labels_and_patterns_keep_their_order(task):
    """Heads number labels in this order, and the first pattern that fits is the default."""
    own = compose_run([f"task={task}"])
    there = processes.read_text(processes.text_of(own))
    assert there == own
    for key in ("labels", "pvps"):
        before, after = (list(one.config["task"].get(key) or ()) for one in (own, there))
        assert before == after
    assert any(list(v) != sorted(v) for v in own.config["task"].values() if isinstance(v, dict))


def test_a_run_of_another_process_is_the_same_run(tmp_path):
    own = compose_run(["task=pocket_topics", "method=prompt_tuning", f"outputs={tmp_path}"])
    here, there = plan(own), plan(processes.read_text(processes.text_of(own)))
    assert there.task.labels == here.task.labels != sorted(here.task.labels)
    assert there.folder == here.folder


@pytest.mark.parametrize("typed", ["trial={20: 50.0}", "trial={20: .nan}", "name=mañana"])
def test_keys_that_are_numbers_and_odd_values_come_back(typed):
    own = compose_run([typed])
    there = processes.read_text(processes.text_of(own))
    assert repr(there.config) == repr(own.config) and there.names == own.names
