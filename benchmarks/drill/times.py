"""The longest time without a save in a run, and the time to resume, of new processes."""

import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.drill.world import World
from ptrun.folder.scan import progress
from ptrun.training.member import SAVE_SECONDS

_STEPS = 100_000  # more than a run takes until it is stopped
_WATCHED = 3.2  # times SAVE_SECONDS
_RESUMES = 3


def measure(world: World) -> dict[str, Any]:
    """Return the setting, and the measured seconds."""
    folder = world.clear()
    line = [*world.table(), f"train.max_steps={_STEPS}", f"train.eval_every={_STEPS}"]
    gaps = _gaps([*line, f"outputs={folder}"], folder)
    resumes = [_resumed([*line, f"outputs={folder}"], folder) for _ in range(_RESUMES)]
    return {
        "save_seconds": SAVE_SECONDS,
        "longest_without_save": round(max(gaps), 1),
        "saves_watched": len(gaps),
        "load": round(os.getloadavg()[0]),
        "seconds_to_resume": [round(one, 1) for one in resumes],
    }


def _start(line: list[str]) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "ptrun", *line]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdout=quiet, stderr=quiet, cwd=Path(__file__).parents[2])


def _gaps(line: list[str], folder: Path) -> list[float]:
    """Return the seconds between saves, from the first step on, of a run that is then killed."""
    running, times, state = _start(line), [0.0], 0.0
    began = _wait_for_step(running, folder, 0)
    times[0] = time.time()
    while time.monotonic() - began < _WATCHED * SAVE_SECONDS:
        assert running.poll() is None
        for file in folder.rglob("state.safetensors"):
            if (changed := file.stat().st_mtime) != state:
                state = changed
                times.append(changed)
        time.sleep(0.02)
    running.send_signal(signal.SIGTERM)
    running.wait()
    return [after - before for before, after in pairwise(times)]


def _resumed(line: list[str], folder: Path) -> float:
    """Return the seconds from the start of a command to its first new step; then stop it."""
    before, began = _last_step(folder), time.monotonic()
    running = _start(line)
    seconds = _wait_for_step(running, folder, before) - began
    os.kill(running.pid, signal.SIGTERM)
    running.wait()
    return seconds


def _wait_for_step(running: "subprocess.Popen[bytes]", folder: Path, before: int) -> float:
    """Return when a run has a later step than `before`, on the monotonic clock."""
    while _last_step(folder) <= before:
        assert running.poll() is None, "the run ended before its next step"
        time.sleep(0.01)
    return time.monotonic()


def _last_step(folder: Path) -> int:
    return max((progress(file.parent)[0] for file in folder.rglob("metrics.jsonl")), default=0)
