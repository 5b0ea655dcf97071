"""Run every table of every paper in the pocket world and time it: `make nightly`.

    python benchmarks/nightly.py [PAPER/TABLE ...]

scripts/reproduce.sh gets +scale=pocket. It checks all cells, runs them and reports. Cells that
become equal at this scale run once. Each core does a table at a time. Writes results/nightly.json.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue

from running import HERE, arguments, keep, kept

from ptrun.papers.experiment import load, names, own_cells

SCRIPT = HERE.parent / "scripts" / "reproduce.sh"


def timed(outputs: str, name: str) -> dict[str, object]:
    """Run a table; return its exit status, seconds and lines about runs."""
    began = time.monotonic()
    line = [str(SCRIPT), name, "+scale=pocket", f"outputs={outputs}", "sweep.wait=true"]
    done = subprocess.run(line, capture_output=True, text=True)
    found = {"seconds": round(time.monotonic() - began, 1), "exit": done.returncode}
    runs = [own for own in done.stderr.splitlines() if re.match(r"\d+ runs?: ", own)]
    wrong = [own for own in done.stderr.splitlines() if own.startswith("ptrun:")]
    found |= {"runs": runs, **({"wrong": wrong} if done.returncode else {})}
    print(name, found, flush=True)
    return found


def pinned(cores: SimpleQueue) -> None:
    """Keep this thread, and the processes that it starts, on a core of its own."""
    os.sched_setaffinity(0, {cores.get()})


def main() -> None:
    """Run the named tables, or all; figures of other tables are kept."""
    parser = arguments(__doc__)
    parser.add_argument("tables", nargs="*", metavar="PAPER/TABLE")
    given = parser.parse_args()
    file = given.out / "nightly.json"
    found = kept(file, {}) if given.tables else {}
    tables = given.tables or [name for name in names() if own_cells(load(name))]
    free: SimpleQueue = SimpleQueue()
    cores = os.sched_getaffinity(0)
    for core in cores:
        free.put(core)
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as outputs,
        ThreadPoolExecutor(len(cores), initializer=pinned, initargs=[free]) as pool,
    ):
        done = pool.map(partial(timed, outputs), tables)
        found |= dict(zip(tables, done, strict=True))
    print(f"{len(tables)} tables in {time.monotonic() - began:.0f} s")
    keep(file, dict(sorted(found.items())))
    failed = [name for name, own in found.items() if own["exit"]]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
