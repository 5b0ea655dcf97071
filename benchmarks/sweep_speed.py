"""Compare a sweep of 20 few-shot runs with a loop of 20 runs of HF Trainer and PEFT.

    python benchmarks/sweep_speed.py --minilm FOLDER --data DIR [--method prefix] [--alone]
        [--precision fp32]
    python benchmarks/sweep_speed.py --shape bert_base --device cuda --precision bf16

Five seeds and four learning rates, 32 training sentences of SST-2 (of the pocket world without
--data), batches of 16, 40 steps, four evaluations on 200 sentences, MiniLM or a shape with random
weights. The loop is one process that imports and tokenizes once. Ours
is `ptrun -m`, from the command to the end of `ptrun report`; with --alone also without sharing.
On a CPU their precision is fp32. Adds to results/sweep_speed.json.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

from peers import (
    HERE,
    LENGTH,
    METHODS,
    POCKET,
    PTRUN,
    SHAPES,
    Job,
    in_order,
    model_folder,
    write_rows,
)

RESULTS = HERE / "results"
JOB = Job("few_shot", 16, 32, 40)
SEEDS = (1, 2, 3, 4, 5)
_ALONE = "sweep.share=none"
RATES = {"prefix": (3e-3, 1e-2, 2e-2, 5e-2), "prompt": (3e-3, 1e-2, 3e-2, 1e-1)}


def ours(method: str, model: str, files: dict[str, str], precision: str, *typed: str) -> dict:
    """Run the sweep and the report; return seconds and scores."""
    name, _, options = METHODS[method]
    with tempfile.TemporaryDirectory() as out:
        command = [*PTRUN, "-m", f"method={name}", *options, "task=csv", "task.text=text"]
        command += ["task.label=label", *(f"task.{part}={file}" for part, file in files.items())]
        command += [f"backbone.path={model}", f"outputs={out}", f"train.batch_size={JOB.batch}"]
        command += [f"train.max_steps={JOB.steps}", f"train.eval_every={JOB.steps // 4}"]
        command += [f"seed={','.join(map(str, SEEDS))}", f"hardware.precision={precision}"]
        command += [f"train.lr={','.join(map(str, RATES[method]))}", *typed]
        began = time.time()
        subprocess.run(command, check=True, capture_output=True)
        trained = time.time() - began
        subprocess.run([*PTRUN, "report", out], check=True, capture_output=True)
        seconds = time.time() - began
        found = [json.loads(file.read_text()) for file in sorted(Path(out).rglob("result.json"))]
    return {
        "seconds": seconds,
        "trained_s": trained,
        "runs": len(found),
        "peak_mib": max(one["manifest"]["peak_memory_mib"] for one in found),
        "accuracies": [one["metrics"]["dev"]["accuracy"] for one in found],
    }


def theirs(method: str, model: str, files: dict[str, str], into: Path, **on: str) -> dict:
    """Run the loop; return seconds and scores."""
    runs = [{"seed": seed, "lr": lr} for seed in SEEDS for lr in RATES[method]]
    case = {"model": model, "method": method, "length": LENGTH, "batch": JOB.batch, "runs": runs}
    case |= {"steps": JOB.steps, "eval_every": JOB.steps // 4, "precision": "fp32", **on}
    case |= {"train": in_order(files, JOB, into), "dev": files["dev"], "out": str(into / "out")}
    file = into / "case.json"
    file.write_text(json.dumps({**case, "threads": os.cpu_count()}))
    began = time.time()
    line = [sys.executable, str(HERE / "peer_trainer.py"), str(file)]
    done = subprocess.run(line, check=True, capture_output=True, text=True)
    seconds = time.time() - began
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"')]
    return {
        "seconds": seconds,
        "runs": len(found),
        "peak_mib": found[-1]["peak_mib"],
        "accuracies": [one["accuracy"] for one in found],
    }


def main() -> None:
    """Measure, and add to the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minilm", type=Path)
    parser.add_argument("--shape", default="minilm", choices=SHAPES)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--tokenizer", type=Path, default=POCKET)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--method", default="prefix", choices=RATES)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of sweep_speed.json")
    given = parser.parse_args()
    os.environ |= {"HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryDirectory() as folder:
        files = write_rows(given.data, JOB, Path(folder))
        model = str(model_folder(given.shape, given.minilm, given.tokenizer, Path(folder)))
        on = {"device": given.device, "precision": given.precision}
        hardware = "hardware=gpu" if given.device == "cuda" else "hardware=cpu"
        cell = (given.method, model, files, given.precision, hardware)
        one = {"date": date.today().isoformat(), "threads": os.cpu_count()}
        one["ours"] = ours(*cell)
        print("ours", one["ours"], flush=True)
        if given.alone:
            one["alone"] = ours(*cell, "sweep.share=none")
            print("alone", one["alone"], flush=True)
        own = on if given.device == "cuda" else {}
        one["theirs"] = theirs(given.method, model, files, Path(folder), **own)
    one["ratio"] = one["ours"]["seconds"] / one["theirs"]["seconds"]
    file = given.out / "sweep_speed.json"
    kept = json.loads(file.read_text()) if file.exists() else {}
    shape = "" if (given.shape, given.device) == ("minilm", "cpu") else f" {given.shape}"
    kept[f"{given.method} {given.precision}{shape}{'' if given.device == 'cpu' else ' cuda'}"] = one
    file.write_text(json.dumps(kept, indent=1) + "\n")
    print(json.dumps(one, indent=1))


if __name__ == "__main__":
    main()
