"""The fault drill: see what becomes of commands that are killed, starved, or fed damaged files.

    python -m benchmarks.drill [--parts NAME ...] [--kills 200] [--places 100] [--cases 4]

Parts that are left out keep the figures of the last drill. Writes results/faults.{md,json}.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.drill import covered, page, times
from benchmarks.drill.ends import BAD, Ended
from benchmarks.drill.parts import PARTS, Part
from benchmarks.drill.warm import Warm
from benchmarks.drill.world import World

RESULTS = Path(__file__).parents[1] / "results"
_SAID = 20  # bad cases that are printed


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


def main() -> None:
    """Do the drill and write its results."""
    given = _given()
    if lost := covered.missing():
        sys.exit(f"tests that the page names are missing: {', '.join(lost)}")
    file = RESULTS / "faults.json"
    kept = json.loads(file.read_text()) if file.exists() else {}
    kept = kept if "parts" in kept else {"parts": {}}
    with tempfile.TemporaryDirectory(prefix="drill-") as folder:
        lanes = Lanes(Path(folder).resolve())
        bad = [one for name in given.parts for one in _part(name, given, lanes, kept)]
        lanes.close()
    file.write_text(json.dumps(kept, indent=1) + "\n")
    (RESULTS / "faults.md").write_text(page.text(kept))
    for one in bad[:_SAID]:
        print(f"{one.kind}: {one.end}: {one.what}\n{one.said}\n", file=sys.stderr)
    sys.exit(1 if any(one.end in BAD for one in bad) else 0)


def _given() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = [*PARTS, "times"]
    parser.add_argument("--parts", nargs="*", choices=parts, default=parts)
    parser.add_argument("--kills", type=int, default=200, help="kills, in all")
    parser.add_argument("--places", type=int, default=100, help="places of a kind of file")
    parser.add_argument("--cases", type=int, default=4, help="cases of a command and a fault")
    parser.add_argument("--lanes", type=int, default=2, help="cases at once")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def _part(name: str, given: argparse.Namespace, lanes: Lanes, kept: dict) -> list[Ended]:
    """Do a part and keep its figures; return the cases that are not plain."""
    began = time.monotonic()
    if name == "times":
        kept["times"] = times.measure(lanes.world())
        return []
    part = PARTS[name]
    with ThreadPoolExecutor(given.lanes, f"lane-{name}") as pool:
        kinds = part.kinds()
        found = list(pool.map(lambda kind: _kind(part, kind, given, lanes), kinds))
    ended = [one for own in found for one in own]
    rows = {kind: page.counts(own) for kind, own in zip(kinds, found, strict=True)}
    facts = {"seconds": round(time.monotonic() - began), "seed": given.seed}
    kept["parts"][name] = {**facts, "how": part.how(), "rows": rows}
    return [one for one in ended if one.end in (*BAD, "unclear")]


def _kind(part: Part, kind: str, given: argparse.Namespace, lanes: Lanes) -> Sequence[Ended]:
    """Do the cases of a kind; print how they ended."""
    began, world = time.monotonic(), lanes.world()
    numbers = range(part.number(given, kind))
    found = [part.do(world, kind, number, given.seed) for number in numbers]
    seconds = round(time.monotonic() - began)
    print(f"{part.title}: {kind}: {page.counts(found)}, {seconds} s", flush=True)
    for one in found:
        if one.end in (*BAD, "unclear"):
            print(f"  {one.end}: {one.what}: {one.said}", flush=True)
    return found


if __name__ == "__main__":
    main()
