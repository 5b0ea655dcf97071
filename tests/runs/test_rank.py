"""A rank that fails because another one died ends without a traceback of its own."""

import os
import signal
import subprocess
import sys
import time

import pytest

PROGRAM = """
import sys
from ptrun.runs import rank
def fail(file):
    raise RuntimeError("Connection closed by peer")
rank._run, rank._QUIET = fail, float(sys.argv.pop())
rank.main()
"""


@pytest.mark.parametrize("ended", [True, False])
def test_a_rank_that_is_ended_while_it_waits_prints_nothing(tmp_path, ended):
    env = {**os.environ, "PTRUN_PARENT": str(os.getpid()), "RANK": "1", "WORLD_SIZE": "2"}
    env["PYTHONPATH"] = os.pathsep.join(sys.path)
    line = [sys.executable, "-c", PROGRAM, str(tmp_path / "run.yaml"), "60" if ended else "0"]
    rank = subprocess.Popen(line, env=env, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while ended and not list(tmp_path.glob("rank1*")) and time.monotonic() < until:
        time.sleep(0.01)
    if ended:
        time.sleep(0.2)
        rank.send_signal(signal.SIGTERM)
    _, told = rank.communicate(timeout=60)
    assert rank.returncode == (-signal.SIGTERM if ended else 1)
    assert ("Traceback" in told) != ended
