"""The disguised device refuses and counts what a GPU would."""

import json


def test_the_device_refuses_and_counts(disguised):
    ran = disguised("-m", "tests.cuda.checks")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert len(found) == 12 and {n: v for n, v in found.items() if v != "ok"} == {}


def test_a_step_is_read_after_the_passes_of_the_next_one(disguised):
    ran = disguised("-m", "tests.cuda.late")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["order"][:6] == ["passes", "passes", 0, "passes", 1, "passes"]
    assert found["waits"] <= 1
