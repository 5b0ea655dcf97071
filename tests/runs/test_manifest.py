"""What a run says of its machine."""

import subprocess
import sys
from pathlib import Path

import pytest

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
