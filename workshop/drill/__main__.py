"""The fault drill: see what becomes of commands that are killed, starved, or fed damaged files.

    python -m workshop.drill [--parts NAME ...] [--kills 200] [--places 100] [--out FOLDER]

Parts that are left out keep the figures of the last drill. Writes results/faults.{md,json}.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

from ptrun.files import write_text
from ptrun.folder.result import write_json
from ptrun.folder.scan import progress
from ptrun.training.member import SAVE_SECONDS
from workshop.drill import page
from workshop.drill.ends import BAD, Ended
from workshop.drill.parts import PARTS
from workshop.drill.warm import Warm
from workshop.drill.world import World

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks/results"
_STEPS = 100_000  # more than a run takes until it is stopped
_WATCHED = 3.2  # times SAVE_SECONDS
_RESUMES = 3


class Lanes:
    """Worlds, one for each thread, below a folder."""

    def __init__(self, root: Path):
        self.root, self._own, self.all = root, threading.local(), list[World]()

    def world(self) -> World:
        """Return the world of this thread."""
        if not hasattr(self._own, "world"):
            self._own.world = World(self.root / threading.current_thread().name, Warm())
            self.all.append(self._own.world)
        world: World = self._own.world
        return world

    def close(self) -> None:
        """End the processes."""
        for world in self.all:
            world.warm.stop()


class Kept:
    """The figures of the last drills, in a file.

    Args:
        folder: of the results.
    """

    def __init__(self, folder: Path):
        self.folder, self._lock = folder, threading.Lock()
        file = folder / "faults.json"
        self.content = json.loads(file.read_text()) if file.exists() else {"parts": {}}

    def put(self, part: str, kind: str, row: dict[str, int]) -> None:
        """Keep the figures of a row, in the order of the kinds."""
        with self._lock:
            own = self.content["parts"].setdefault(part, {"rows": {}})
            rows = {**own["rows"], kind: row}
            kinds = PARTS[part].kinds()
            own |= {"how": PARTS[part].how(), "rows": {k: rows[k] for k in kinds if k in rows}}
            self.write()

    def write(self) -> None:
        """Write the figures and the page."""
        write_json(self.folder / "faults.json", self.content)
        write_text(self.folder / "faults.md", page.text(self.content))


def main() -> None:
    """Do the drill and write its results."""
    given = _given()
    kept = Kept(given.out)
    with tempfile.TemporaryDirectory(prefix="drill-") as folder:
        lanes = Lanes(Path(folder).resolve())
        bad = [one for name in given.parts for one in _part(name, given, lanes, kept)]
        lanes.close()
    sys.exit(1 if any(one.end in BAD for one in bad) else 0)


def _given() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m workshop.drill", description=__doc__)
    parts = [*PARTS, "times"]
    parser.add_argument("--parts", nargs="*", choices=parts, default=parts)
    parser.add_argument("--kinds", nargs="*", metavar="KIND", help="these rows alone")
    parser.add_argument("--kills", type=int, default=200, help="kills, in all")
    parser.add_argument("--places", type=int, default=100, help="places of a kind of file")
    parser.add_argument("--cases", type=int, default=4, help="cases of a command and a fault")
    parser.add_argument("--strangers", type=int, default=420, help="files of somebody else, in all")
    parser.add_argument("--lanes", type=int, default=2, help="cases at once")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    return parser.parse_args()


def _part(name: str, given: argparse.Namespace, lanes: Lanes, kept: Kept) -> list[Ended]:
    """Do a part and keep its figures; return the cases that are not plain."""
    if name == "times":
        kept.content["times"] = measured(lanes.world())
        kept.write()
        return []
    kinds = [kind for kind in PARTS[name].kinds() if kind in (given.kinds or [kind])]
    with ThreadPoolExecutor(given.lanes, f"lane-{name}") as pool:
        found = list(pool.map(lambda kind: _kind(name, kind, given, lanes, kept), kinds))
    return [one for own in found for one in own if one.end in (*BAD, "unclear")]


def _kind(
    name: str, kind: str, given: argparse.Namespace, lanes: Lanes, kept: Kept
) -> Sequence[Ended]:
    """Do the cases of a kind, print how they ended and keep the figures."""
    began, world, part = time.monotonic(), lanes.world(), PARTS[name]
    numbers = range(part.number(given, kind))
    found = [part.do(world, kind, number, given.seed) for number in numbers]
    seconds = round(time.monotonic() - began)
    row = {**page.counts(found), "seconds": seconds, "seed": given.seed}
    print(f"{name}: {kind}: {row}", flush=True)
    for one in found:
        if one.end in (*BAD, "unclear"):
            print(f"  {one.end}: {one.what}: {one.said}", flush=True)
    kept.put(name, kind, row)
    return found


def measured(world: World) -> dict[str, Any]:
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
    command, quiet = [sys.executable, "-m", "ptrun", *line], subprocess.DEVNULL
    return subprocess.Popen(command, stdout=quiet, stderr=quiet, cwd=ROOT)


def _gaps(line: list[str], folder: Path) -> list[float]:
    """Return the seconds between saves, from the first step on, of a run that is then killed."""
    running, state = _start(line), 0.0
    began, times = _wait_for_step(running, folder, 0), [time.time()]
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
    before, began, running = _last_step(folder), time.monotonic(), _start(line)
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
    return max((progress(file.parent).step for file in folder.rglob("metrics.jsonl")), default=0)


if __name__ == "__main__":
    main()
