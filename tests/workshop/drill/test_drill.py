"""A short form of `make drill`: no fault gives a traceback, a loss or another answer."""

import json

import pytest
import torch
from safetensors.torch import save

from workshop.drill import damage, disk, kills, page, strangers, vanishing
from workshop.drill.ends import ENDS, of_damage, of_fault
from workshop.drill.parts import PARTS
from workshop.drill.vanishing import rounded, used
from workshop.drill.warm import Called
from workshop.drill.works import WORKS

DAMAGED = [
    "prompt, predict",
    "journal, resume",
    "state, resume",
    "labels, train",
    "jobs of a cluster, status",
]
DAMAGED += ["kept hashes, predict", "result, report"]
TRACEBACK = "Traceback (most recent call last):\n"


@pytest.mark.slow
@pytest.mark.parametrize("kind", DAMAGED)
def test_damage_is_healed_or_refused_by_name(world, kind):
    for number in range(2):
        one = damage.do(world, kind, number, seed=7)
        assert one.end in ENDS[:3], one


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fused group", "writing texts", "predict --output"])
def test_a_killed_command_is_finished_by_typing_it_again(world, kind):
    one = kills.do(world, kind, 0, seed=7)
    assert one.end in ("healed", "same"), one


@pytest.mark.slow
@pytest.mark.skipif(not disk.can_mount(), reason="user: only root may mount a tmpfs")
def test_a_full_disk_is_named_and_a_larger_one_is_enough(world):
    one = disk.full(world, "import data", 0, seed=1)
    assert one.end in ENDS[:3], one


@pytest.mark.slow
def test_a_limit_of_the_size_of_a_file_is_named(world):
    one = disk.limited(world, "import data", 0, seed=1)
    assert one.end in ENDS[:3], one


@pytest.mark.slow
@pytest.mark.parametrize("do", [vanishing.output, vanishing.data], ids=["output", "data"])
def test_folders_may_vanish(world, do):
    one = do(world, "import data", 0, seed=1)
    assert one.end in ENDS[:3], one


@pytest.mark.slow
@pytest.mark.parametrize("kind", strangers.KINDS)
def test_files_of_somebody_else_do_no_harm(world, kind):
    for number in range(4):
        one = strangers.do(world, kind, number, seed=7)
        assert one.end in ("same", "refused"), one


def test_the_drill_sees_harm():
    def judged(code, text="", *, changed=False, leaked=False):
        return strangers.judged(Called(code, text, ""), changed=changed, leaked=leaked)

    assert judged(0) == "same" and judged(1, "run.yaml: damaged") == "refused"
    assert judged(0, changed=True) == judged(1, leaked=True) == "wrong"
    assert judged(0, f"name {strangers.SECRET}") == judged(0, "a\x1b[2J") == "wrong"
    assert judged(1, TRACEBACK) == "traceback" and judged(-9) == "lost"


def test_rounding_is_no_other_answer_and_what_was_used_may_be_gone():
    def runs(loss, labels=("a", "b"), weight=0.5):
        prompt = save({"prompt": torch.full((2,), weight)}).hex()
        journal = json.dumps({"event": "step", "loss": loss, "digest": str(loss)})
        return json.dumps([{"run": json.dumps([{"dev": 1.0}, journal, prompt])}, labels])

    assert rounded(runs(0.5), runs(0.50001)) and not rounded(runs(0.5), runs(0.6))
    assert not rounded(runs(0.5), runs(0.5, weight=0.6))
    assert not rounded(json.dumps([{}, []]), runs(0.5))
    assert used(runs(0.5, ("a",)), runs(0.5))
    assert not used(runs(0.5, ("c",)), runs(0.5))
    assert not used(runs(0.50001), runs(0.5)) and not used(json.dumps([{}, []]), runs(0.5))


def test_the_drill_sees_damage(tmp_path):
    """A judge that passes everything would find nothing."""
    file = tmp_path / "run" / "state.safetensors"

    def judged(code, err="", answer="a"):
        return of_damage(Called(code, "", err), answer, "a", file)

    assert judged(0) == "same" and judged(0, answer="b") == "wrong"
    assert judged(0, f"{file}: damaged", "b") == "healed" == judged(0, "made again")
    assert judged(1, TRACEBACK) == "traceback"
    assert judged(1, f"{file}: damaged") == "refused" and judged(1, "damaged") == "unclear"
    assert judged(-14) == "lost" and judged(143) == "lost"


def test_the_drill_sees_what_a_fault_left(tmp_path):
    well, told = Called(0, "", ""), Called(1, "", f"ptrun: {tmp_path}/x: No space left")

    def judged(first, again, answer="a"):
        return of_fault(first, again, answer, "a", tmp_path)

    assert judged(told, well) == "refused" and judged(well, well) == "same"
    assert judged(Called(1, "", "No space left"), well) == "unclear"
    assert judged(told, told, "") == "lost" and judged(Called(-9, "", ""), well) == "lost"
    assert judged(told, well, "b") == "wrong" == judged(well, well, "b")
    assert judged(told, Called(1, "", TRACEBACK)) == "traceback"


def test_the_page_names_tests_that_exist():
    assert page.missing() == []
    assert not page._exists("workshop/drill/test_drill.py", "test_of_nothing")


def test_every_command_that_writes_has_its_rows():
    assert set(kills.KINDS) | {"export", "report --csv"} == set(WORKS)
    assert set(PARTS["disk"].kinds()) == set(WORKS)
