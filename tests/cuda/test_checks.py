"""The disguised device refuses and counts what a GPU would."""

import json


def test_the_device_refuses_and_counts(disguised):
    ran = disguised("-m", "tests.cuda.checks")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert len(found) == 11 and {n: v for n, v in found.items() if v != "ok"} == {}
