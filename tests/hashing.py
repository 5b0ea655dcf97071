"""Whether what a program prints depends on the seed of Python's hashes."""

import os
import subprocess
import sys


def told(code: str) -> set[str]:
    """Return what the code prints in processes of two seeds: one text if it does not matter."""
    line, texts = [sys.executable, "-c", code], set()
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        texts.add(subprocess.run(line, env=env, capture_output=True, text=True, check=True).stdout)
    return texts
