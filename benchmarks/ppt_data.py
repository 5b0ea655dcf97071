"""How fast PPT's examples are made of a corpus, and in how much memory.

    python benchmarks/ppt_data.py --data DIR [--corpus corpus_en_large] [--times 1,2,4]

Every example of the train part is made and dropped, for each kind and for the corpus once, twice
and four times over (the same documents again, as a longer stream). Each measurement is a process of
its own; seconds are its processor time (one thread), so that a busy machine counts little. MB are
of text as JSON lines, unpacked; the peak is the kernel's figure for the process (ru_maxrss), beside
that of one that only imports. `load` is how many processes wanted the cores meanwhile. Written to
results/ppt_data.json.
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
    """Return what a process that makes all examples says of itself."""
    done = subprocess.run(
        [sys.executable, "-c", _MAKE, str(corpus), make], capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def repeated(train: Path, times: int, folder: Path) -> Path:
    """Return a folder whose only files are the corpus, so many times over."""
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
    told = {"corpus": given.corpus, "bare_process_mib": round(bare), "cores": os.cpu_count()}
    told["load"] = round(os.getloadavg()[2])
    RESULT.write_text(json.dumps({**told, "rows": rows}, indent=1) + "\n")


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
