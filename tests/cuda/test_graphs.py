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


@pytest.mark.parametrize(
    "cases", tiered([[CASES[:1]], [CASES[1::2]], [CASES[2::2]]], lambda cases: len(cases) == 1)
)
def test_what_is_replayed_is_what_is_launched(disguised, cases):
    ran = disguised("-m", "tests.cuda.replayed", *cases, PTRUN_TEST_CUDA="")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout.splitlines()[-1]) == dict.fromkeys(cases, "ok")


@pytest.mark.slow
def test_a_step_has_few_launches(disguised):
    ran = disguised("-m", "tests.cuda.steps", *LAUNCHES, PTRUN_TEST_CUDA="")
    assert ran.returncode == 0, ran.stderr
    for line, most in zip(
        ran.stdout.splitlines()[-len(LAUNCHES) :], LAUNCHES.values(), strict=True
    ):
        row = json.loads(line)
        launched, replay = row["launched"], row["replayed"]
        assert launched["operations"] + launched["programs"] <= most, row
        assert replay["operations"] + replay["programs"] <= LEFT and not launched["graphs"], row
