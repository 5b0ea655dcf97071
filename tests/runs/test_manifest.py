"""What a run says of its machine and of itself."""

import subprocess
import sys
from pathlib import Path

import pytest

from ptrun.config.compose import compose_run
from ptrun.folder.result import summary
from ptrun.runs.launch import launch

CHILD = """
import resource
from ptrun.runs.manifest import machine
inherited = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(machine("cpu")["peak_memory_mib"], inherited)
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/status").is_file(), reason="Linux: it alone hands peaks down"
)
def test_the_peak_is_that_of_the_run_and_not_of_what_started_it():
    large = b"1" * 2**30
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True)
    peak, inherited = map(float, done.stdout.split())
    assert inherited > len(large) / 2**20 and 50 < peak < 900


@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["train.eval_every=20"], []),
        (["train.eval_every=10", "train.lr=100"], ["train.lr=100 is far above", "the loss rose"]),
    ],
)
def test_warnings_are_in_the_summary_and_a_good_run_has_none(tmp_path, typed, words):
    line = ["task=pocket_sentiment", "method=prompt_tuning", "train.max_steps=60", *typed]
    done = launch(compose_run([*line, f"outputs={tmp_path}"]))
    warnings, shown = done.manifest["warnings"], summary(done, tmp_path)
    assert bool(warnings) == bool(words)
    for text in words:
        assert any(text in warning for warning in warnings) and text in shown
