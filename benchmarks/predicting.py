"""Compare `ptrun predict` with `transformers.pipeline` on the same weights and rows.

    python benchmarks/predicting.py --minilm FOLDER --data DIR [--rows 4000] [--repeats 3]

MiniLM is fine-tuned for two steps on SST-2 and exported, so both sides hold the same model. Each
side is a whole command that reads a CSV and writes one, in turns; the pipeline has batches of 1
(its default) and of 32. Writes results/predicting.json.
"""

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

from peers import lines
from running import PTRUN, RESULTS, keep

THEIRS = """
import csv, sys
from transformers import pipeline
model, source, target, size = sys.argv[1:]
texts = [row["text"] for row in csv.DictReader(open(source, encoding="utf-8"))]
pipe = pipeline("text-classification", model=model, device="cpu")
with open(target, "w", encoding="utf-8", newline="") as out:
    writer = csv.writer(out)
    for found in pipe(texts, batch_size=int(size), truncation=True):
        writer.writerow([found["label"], found["score"]])
"""


def took(line: list[str]) -> float:
    """Return the seconds of a command."""
    began = time.monotonic()
    done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(line)}\n{done.stderr[-2000:]}")
    return time.monotonic() - began


def write(file: Path, rows: list[dict]) -> Path:
    """Write texts and labels."""
    with file.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["text", "label"])
        writer.writerows((row["sentence"], row["label"]) for row in rows)
    return file


def main() -> None:
    """Measure, and write the result."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--minilm", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    os.environ |= {"HF_HUB_OFFLINE": "1"}
    rows = lines(given.data, "glue_sst2/train")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        train, asked = write(folder / "train.csv", rows[:500]), folder / "asked.csv"
        write(asked, rows[500 : 500 + given.rows])
        own = [f"task.train={train}", "task.text=text", "task.label=label"]
        own += [f"backbone.path={given.minilm}", "method=fine_tuning", f"outputs={folder / 'runs'}"]
        took([*PTRUN, "task=csv", *own, "train.max_steps=2"])
        (run,) = (folder / "runs" / "runs").iterdir()
        stock = str(folder / "stock")
        took([*PTRUN, "export", str(run), "--to", "transformers", stock])
        commands = {"ours": [*PTRUN, "predict", str(run), "--input", str(asked)]}
        commands["ours"] += ["--output", str(folder / "ours.csv")]
        for size in (1, 32):
            theirs = [stock, str(asked), str(folder / "theirs.csv"), str(size)]
            commands[f"pipeline, batches of {size}"] = [sys.executable, "-c", THEIRS, *theirs]
        found = {name: list[float]() for name in commands}
        for _ in range(given.repeats):
            for name, line in commands.items():
                (folder / "ours.csv").unlink(missing_ok=True)
                found[name].append(round(took(line), 2))
    middle = {name: statistics.median(seconds) for name, seconds in found.items()}
    ratios = {name: round(own / middle["ours"], 2) for name, own in middle.items()}
    content = {"date": date.today().isoformat(), "threads": os.cpu_count(), "rows": given.rows}
    keep(RESULTS / "predicting.json", {**content, "seconds": found, "ratios": ratios})
    print(json.dumps({"seconds": found, "ratios": ratios}, indent=1))


if __name__ == "__main__":
    main()
