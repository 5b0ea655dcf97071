"""Two commands begin the same run at the same moment."""

import json

import pytest

from workshop.drill.warm import Call, Warm
from workshop.drill.works import of_runs

pytestmark = pytest.mark.slow


@pytest.fixture
def other():
    warm = Warm()
    yield warm
    warm.stop()


def test_of_two_commands_at_once_one_does_the_run(world, other, tmp_path):
    line = [*world.table(), "train.max_steps=40", "train.eval_every=20"]
    both = [Call([*line, f"outputs={tmp_path / 'both'}"], tmp_path)] * 2
    running = [own.start(call) for own, call in zip((world.warm, other), both, strict=True)]
    ends = [one.end() for one in running]
    assert sorted(end.code for end in ends) in ([0, 0], [0, 1])
    for end, owner in zip(ends, running[::-1], strict=True):
        assert end.code == 0 or f"is being run by process {owner.pid} on" in end.err
        assert "Traceback" not in end.err
    alone = world.call(*line, f"outputs={tmp_path / 'alone'}")
    assert alone.code == 0 and of_runs(tmp_path / "both") == of_runs(tmp_path / "alone")
    (journal,) = (tmp_path / "both").rglob("metrics.jsonl")
    rows = [json.loads(row) for row in journal.read_text().splitlines()]
    assert [row["step"] for row in rows if row["event"] == "step"] == list(range(1, 41))
