"""Measure the memory of a PPT pre-training run by its number of examples.

    python benchmarks/example_memory.py --data DIR [--examples 20000,200000,2000000]

A process for each number runs `ptrun task=ppt_nsp method=ppt_pretraining backbone=pocket_t5` whole:
it makes pairs, compares and tokenizes them, takes --steps steps of 32, evaluates, and writes its
result. A second process does the same with another seed and reads the files of the first. Lines of
the corpus are cut to 80 characters, to save tokenization; the corpus is repeated where it is too
small. `peak_mib` is VmHWM, the most resident memory of a process, mapped files included. The aim:
peaks within 10 %. Writes results/example_memory.json.
"""

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

RESULT = Path(__file__).parent / "results" / "example_memory.json"
_PAIRS = 90_000  # at least, of one copy of the corpus
_CHARACTERS = 80
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
_RUN = """
import json, sys, time
from pathlib import Path
from ptrun.config.compose import compose_run
from ptrun.runs.launch import launch
done = launch(compose_run(sys.argv[1:]))
lines = Path("/proc/self/status").read_text().splitlines()
peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
cpu, train = time.process_time(), done.manifest["data"]["train"]["count"]
print(json.dumps({"train": train, "peak_mib": peak / 1024, "cpu_seconds": cpu}))
"""


def measured(corpus: Path, examples: int, steps: int, outputs: Path, seed: int) -> dict[str, int]:
    """Return the figures of a process that runs once."""
    typed = ["task=ppt_nsp", "method=ppt_pretraining", "backbone=pocket_t5", "method.length=20"]
    typed += ["readout.pattern=pocket", f"train.max_steps={steps}", f"train.eval_every={steps}"]
    typed += ["train.batch_size=32", f"seed={seed}", f"outputs={outputs}"]
    typed += [f"task.source.corpus={corpus}", f"task.source.examples.train={examples}"]
    command, environment = [sys.executable, "-c", _RUN, *typed], {**os.environ, **_ENVIRONMENT}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return {name: round(figure) for name, figure in figures.items()}


def shortened(train: Path, file: Path) -> Path:
    """Write the corpus with its lines cut, and return the file."""
    with gzip.open(train, "rt", encoding="utf-8") as lines, file.open("w") as out:
        for document in (json.loads(line)["doc"] for line in lines):
            text = "\n".join(line[:_CHARACTERS] for line in document.split("\n"))
            out.write(json.dumps({"doc": text}) + "\n")
    return file


def repeated(file: Path, times: int, folder: Path) -> Path:
    """Return a folder that holds a file `times` times."""
    folder.mkdir()
    for number in range(times):
        (folder / f"part{number:03}.jsonl").symlink_to(file)
    return folder


def spread_of(rows: list[dict[str, Any]], files: str) -> float:
    """Return how much more the largest peak is than the smallest, of runs that do the same."""
    peaks: list[int] = [row["peak_mib"] for row in rows if row["files"] == files]
    return round(max(peaks) / min(peaks) - 1, 3)


def main() -> None:
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--corpus", default="corpus_en_large")
    parser.add_argument("--examples", default="20000,200000,2000000")
    parser.add_argument("--steps", type=int, default=4)
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for examples in map(int, given.examples.split(",")):
        with tempfile.TemporaryDirectory() as made:
            folder, outputs = Path(made), Path(made) / "outputs"
            train = given.data / given.corpus / "train.jsonl.gz"
            file = shortened(train, folder / "short.jsonl")
            corpus = repeated(file, examples // _PAIRS + 1, folder / "corpus")
            for seed, files in ((1, "written"), (2, "read")):
                found = measured(corpus, examples, given.steps, outputs, seed)
                stored = sum(own.stat().st_size for own in outputs.glob(".tokens/*.arrow"))
                rows.append({"files": files, "files_mib": stored // 2**20, **found})
                print(rows[-1], flush=True)
    spread = {files: spread_of(rows, files) for files in ("written", "read")}
    report = {"corpus": given.corpus, "steps": given.steps, "spread": spread, "rows": rows}
    RESULT.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
