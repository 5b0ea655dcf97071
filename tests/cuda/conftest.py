"""Processes on the disguised device."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cuda import device
from tests.cuda.session import environment

ROOT = Path(__file__).parents[2]


@pytest.fixture
def disguised(tmp_path):
    """Run a Python command line on the device: `disguised("-m", "ptrun", ...)`."""
    if reason := device.missing():
        pytest.skip(f"disguised CUDA device: {reason}")

    def run(*line, timeout=600, **env):
        own = {**environment(os.environ), "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "0", **env}
        keys = {"cwd": env.get("CWD", ROOT), "env": own, "timeout": timeout}
        line = [sys.executable, *map(str, line)]
        return subprocess.run(line, capture_output=True, text=True, **keys)

    return run
