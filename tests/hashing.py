"""Whether what a program prints depends on the seed of Python's hashes."""

import os
import subprocess
import sys


def told(code: str) -> set[str]:
    """Return what the code prints in processes of two seeds: one text if it does not matter."""
    return {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
