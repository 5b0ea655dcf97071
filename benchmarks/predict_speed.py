"""Compare `ptrun predict` with the text-classification pipeline of transformers, in rows a second.

    python benchmarks/predict_speed.py --minilm FOLDER --data DIR --tokenizer FOLDER
        [--shapes minilm,bert_base] [--rows 10000] [--repeats 3]

Both label the same sentences with a classification head on the same weights, in fp32. Rows a second
come from the difference between all rows and their first tenth, so that imports and loading do not
count. The pipeline has batch_size=32. Writes results/predict_speed.json.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

from peers import Job, model_folder, write_rows

RESULT = Path(__file__).parent / "results" / "predict_speed.json"
PIPELINE = """
import json, resource, sys, time, torch, transformers
transformers.logging.set_verbosity_error()
torch.set_num_threads(int(sys.argv[3]))
kind = transformers.AutoModelForSequenceClassification
model = kind.from_pretrained(sys.argv[1], num_labels=2, dtype=torch.float32)
tokenizer = transformers.AutoTokenizer.from_pretrained(sys.argv[1])
pipe = transformers.pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")
texts = [json.loads(line)["text"] for line in open(sys.argv[2])]
pipe(texts[:64], batch_size=32, truncation=True)
began = time.perf_counter()
found = pipe(texts, batch_size=32, truncation=True)
seconds = time.perf_counter() - began
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
print(json.dumps({"rows_per_second": len(found) / seconds, "peak_mib": peak}))
"""


def ptrun(*arguments: str) -> float:
    """Run a command and return its seconds."""
    began = time.perf_counter()
    command = [str(Path(sys.executable).parent / "ptrun"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return time.perf_counter() - began


def trained(model: Path, files: dict[str, str], outputs: Path) -> str:
    """Return the folder of a run with a head on the frozen model."""
    typed = ["method=ptuning_v2", "method.length=0", "task=csv", "task.text=text"]
    typed += ["task.label=label", *(f"task.{part}={file}" for part, file in files.items())]
    typed += [f"backbone.path={model}", f"outputs={outputs}", "train.max_steps=2"]
    ptrun(*typed)
    return str(next(outputs.rglob("result.json")).parent)


def ours(run: str, rows: Path, first: Path, tenth: float) -> float:
    """Return the rows a second of `ptrun predict`."""
    seconds = []
    for file in (first, rows):
        with tempfile.TemporaryDirectory() as out:
            seconds.append(
                ptrun("predict", run, "--input", str(file), "--output", f"{out}/o.jsonl")
            )
    count = len(rows.read_text().splitlines())
    return count * (1 - tenth) / (seconds[1] - seconds[0])


def theirs(model: Path, rows: Path) -> dict:
    """Return what the pipeline measured."""
    command = [sys.executable, "-c", PIPELINE, str(model), str(rows), str(os.cpu_count())]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Measure, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minilm", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--shapes", default="minilm,bert_base")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for shape in arguments.shapes.split(","):
            kept = Path(folder) / shape
            kept.mkdir()
            model = model_folder(shape, arguments.minilm, arguments.tokenizer, kept)
            files = write_rows(arguments.data, Job("all", 32, arguments.rows, 2), kept)
            lines = Path(files["train"]).read_text().splitlines(keepends=True)
            unlabelled = [json.dumps({"text": json.loads(line)["text"]}) + "\n" for line in lines]
            rows, first = kept / "rows.jsonl", kept / "first.jsonl"
            rows.write_text("".join(unlabelled))
            first.write_text("".join(unlabelled[: len(lines) // 10]))
            run = trained(model, files | {"train": files["dev"]}, kept / "outputs")
            pairs = []
            for _ in range(arguments.repeats):
                own = ours(run, rows, first, 0.1)
                pairs.append({"ours": own, **theirs(model, rows)})
            ratios = [pair["ours"] / pair["rows_per_second"] for pair in pairs]
            found[shape] = {"rows": len(lines), "pairs": pairs, "ratio": statistics.median(ratios)}
            print(f"{shape}: {found[shape]}", flush=True)
    content = {"date": date.today().isoformat(), "threads": os.cpu_count(), "shapes": found}
    RESULT.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
