"""The experiments of PPT pre-train as long as the paper's prompts, on as many examples."""

import re
from pathlib import Path

import pytest

EXPERIMENTS = Path(__file__).parents[3] / "conf" / "experiment" / "ppt"
BATCH = 256
# Steps of the prompts in the official scripts: NSP, NSS, CLS, unified
ENGLISH, CHINESE = {8_000, 6_000, 22_000, 16_000}, {2_000, 6_000, 22_000, 16_000}
STEPS = {"table4_en": ENGLISH, "table4_zh": CHINESE, "table5": {16_000}, "figure4": {6_000, 8_000}}
SIZE = re.compile(
    r"pretraining\.train\.max_steps=(\d+) pretraining\.task\.source\.examples\.train=(\d+)"
)


@pytest.mark.parametrize("table", STEPS)
def test_steps_are_the_papers_and_each_example_is_read_once(table):
    text = (EXPERIMENTS / f"{table}.yaml").read_text(encoding="utf-8")
    text = re.sub(r"^pocket:.*\n(  .*\n)*", "", text, flags=re.MULTILINE)
    found = {(int(steps), int(examples)) for steps, examples in SIZE.findall(text)}
    assert {steps for steps, _ in found} == STEPS[table]
    assert all(examples == BATCH * steps for steps, examples in found)
    assert len(SIZE.findall(text)) == text.count("pretraining.train.max_steps")
