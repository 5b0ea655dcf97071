"""A step on a GPU: passes that are replayed equal others bit for bit, and few launches are left."""

import json

import pytest

from tests.cuda import replayed
from tests.tiers import tiered

CASES = [name.removeprefix("case_") for name in vars(replayed) if name.startswith("case_")]
LAUNCHES = {"ptuning_v2": 600, "prompt_tuning": 560, "lora": 840}
"""The most operations and programs of a step; PEFT has 833, 775 and 1,134."""
LEFT = 150
"""The most that are left beside two graphs: losses, heads, norms and the optimizer."""


@pytest.mark.parametrize("case", tiered(CASES, lambda case: case == "prefix"))
def test_what_is_replayed_is_what_is_launched(disguised, case):
    ran = disguised("-m", "tests.cuda.replayed", case, PTRUN_TEST_CUDA="")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout.splitlines()[-1]) == {case: "ok"}


@pytest.mark.slow
@pytest.mark.parametrize("method", LAUNCHES)
def test_a_step_has_few_launches(disguised, method):
    ran = disguised("-m", "tests.cuda.steps", method, PTRUN_TEST_CUDA="")
    assert ran.returncode == 0, ran.stderr
    row = json.loads(ran.stdout.splitlines()[-1])
    launched, replay = row["launched"], row["replayed"]
    assert launched["operations"] + launched["programs"] <= LAUNCHES[method], row
    assert replay["operations"] + replay["programs"] <= LEFT and not launched["graphs"], row
