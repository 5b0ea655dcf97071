"""The disguised device refuses and counts what a GPU would."""

import json

import pytest


def test_the_device_refuses_and_counts(disguised):
    ran = disguised("-m", "tests.cuda.checks")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert len(found) == 12 and {n: v for n, v in found.items() if v != "ok"} == {}


@pytest.mark.slow
def test_a_step_is_read_after_the_passes_of_the_next_one(disguised):
    ran = disguised("-m", "tests.cuda.late")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["order"][:6] == ["passes", "passes", 0, "passes", 1, "passes"]
    assert found["waits"] <= 1


LAYERS = 3


@pytest.mark.slow
def test_a_token_starts_no_more_than_the_library_does(disguised):
    ran = disguised("-m", "tests.cuda.writing")
    assert ran.returncode == 0, ran.stderr
    costs = json.loads(ran.stdout.splitlines()[-1])
    for kind, most in (("gpt2", 78), ("llama", 139)):
        launches = {name: count for name, (count, _) in costs[kind].items()}
        assert {name: waits for name, (_, waits) in costs[kind].items() if waits > 1} == {}
        assert launches["bare"] == launches["prefix"] <= min(most, launches["static"])
        maps = LAYERS * (1 if kind == "gpt2" else 2)
        assert launches["lora"] <= launches["bare"] + 4 * maps  # two products, a scale, a sum
        assert launches["greedy"] <= launches["bare"] + 7  # the library's search for an end
        assert launches["draws"] <= launches["bare"] + 9  # noise of uniform numbers
