"""Measure the speed and memory of making PPT's examples from a corpus.

    python benchmarks/ppt_data.py --data DIR [--corpus corpus_en_large] [--times 1,2,4]

Makes every example of train and drops it, for each kind. The corpus is read once, twice and four
times over, as a longer stream of the same documents. Each measurement has its own process. Seconds
are its processor time (one thread), so a busy machine matters little. MB are of unpacked JSON
lines. The peak is the kernel's ru_maxrss; `bare_process_mib` is that of a process that only
imports. `load` is the load average. Writes results/ppt_data.json.
"""

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

RESULT = Path(__file__).parent / "results" / "ppt_data.json"
_MAKE = """
import json, resource, sys, time
from ptrun.task.ppt.construction import Construction
corpus, make = sys.argv[1:]
most = dict.fromkeys(("train", "validation", "test"), 10**12)
began, examples = time.process_time(), 0
for _ in Construction(corpus=corpus, make=make, examples=most).rows("train") if make else ():
    examples += 1
seconds = time.process_time() - began
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"examples": examples, "seconds": seconds, "peak_mib": peak}))
"""


def measured(corpus: Path, make: str) -> dict[str, float]:
    """Return the figures of a process that makes all examples."""
    done = subprocess.run(
        [sys.executable, "-c", _MAKE, str(corpus), make], capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def repeated(train: Path, times: int, folder: Path) -> Path:
    """Return a folder that holds the corpus `times` times."""
    for number in range(times):
        (folder / f"part{number}{''.join(train.suffixes)}").symlink_to(train)
    return folder


def main() -> None:
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--corpus", default="corpus_en_large")
    parser.add_argument("--times", default="1,2,4")
    given = parser.parse_args()
    train = (given.data / given.corpus / "train.jsonl.gz").resolve()
    with gzip.open(train) as opened:
        size = sum(map(len, opened)) / 1e6
    bare = measured(train, "")["peak_mib"]
    rows = []
    for make in ("nsp", "nss", "unified"):
        for times in map(int, given.times.split(",")):
            with tempfile.TemporaryDirectory() as folder:
                found = measured(repeated(train, times, Path(folder)), make)
            rows.append(row(make, times * size, found))
            print(rows[-1], flush=True)
    report = {"corpus": given.corpus, "bare_process_mib": round(bare), "cores": os.cpu_count()}
    report["load"] = round(os.getloadavg()[2])
    RESULT.write_text(json.dumps({**report, "rows": rows}, indent=1) + "\n")


def row(make: str, size: float, found: dict[str, float]) -> dict[str, object]:
    """Return one line of the table."""
    return {
        "make": make,
        "mb": round(size, 1),
        "examples": found["examples"],
        "cpu_seconds": round(found["seconds"], 1),
        "mb_per_second": round(size / found["seconds"], 2),
        "examples_per_second": round(found["examples"] / found["seconds"]),
        "peak_mib": round(found["peak_mib"]),
    }


if __name__ == "__main__":
    main()
