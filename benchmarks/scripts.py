"""Run every script of scripts/reproduce in the pocket world and time it: `make nightly`.

    python benchmarks/scripts.py [NAME ...]

Each script gets +scale=pocket. It checks all cells, runs them and reports. Cells that become equal
at this scale run once. Each core does a script at a time. Writes results/scripts.json.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).parents[1]
RESULT = Path(__file__).parent / "results" / "scripts.json"


def timed(outputs: str, script: Path) -> dict[str, object]:
    """Run a script; return its exit status, seconds and lines about runs."""
    began = time.monotonic()
    line = [str(script), "+scale=pocket", f"outputs={outputs}", "sweep.wait=true"]
    done = subprocess.run(line, capture_output=True, text=True)
    found = {"seconds": round(time.monotonic() - began, 1), "exit": done.returncode}
    runs = [own for own in done.stderr.splitlines() if re.match(r"\d+ runs?: ", own)]
    wrong = [own for own in done.stderr.splitlines() if own.startswith("ptrun:")]
    found |= {"runs": runs, **({"wrong": wrong} if done.returncode else {})}
    print(script.stem, found, flush=True)
    return found


def pinned(cores: SimpleQueue) -> None:
    """Keep this thread, and the processes that it starts, on a core of its own."""
    os.sched_setaffinity(0, {cores.get()})


def main() -> None:
    """Run the named scripts, or all; figures of other scripts are kept."""
    wanted = sys.argv[1:]
    found = json.loads(RESULT.read_text()) if wanted and RESULT.exists() else {}
    every = sorted((ROOT / "scripts" / "reproduce").glob("*.sh"))
    scripts = [one for one in every if not wanted or one.stem in wanted]
    free: SimpleQueue = SimpleQueue()
    cores = os.sched_getaffinity(0)
    for core in cores:
        free.put(core)
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as outputs,
        ThreadPoolExecutor(len(cores), initializer=pinned, initargs=[free]) as pool,
    ):
        done = pool.map(partial(timed, outputs), scripts)
        found |= dict(zip((script.stem for script in scripts), done, strict=True))
    print(f"{len(scripts)} scripts in {time.monotonic() - began:.0f} s")
    RESULT.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n")
    failed = [name for name, own in found.items() if own["exit"]]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
