"""Compare a sweep of few-shot runs with a loop of as many runs of HF Trainer and PEFT.

    python benchmarks/sweep_speed.py --minilm FOLDER --data DIR [--method prefix] [--alone]
        [--precision fp32] [--runs 6] [--steps 40]
    python benchmarks/sweep_speed.py --shape bert_base --device cuda --precision bf16

20 runs are five seeds and four learning rates, 6 are three and two, 2 are one and two; 32 training
sentences of SST-2 (of the pocket world without --data), batches of 16, 40 steps, four evaluations
on 200 sentences, MiniLM or a shape with random weights. The loop is one process that imports and
tokenizes once. Ours is `ptrun -m`, from the command to the end of `ptrun report`; with --alone also
without sharing.
On a CPU their precision is fp32. Adds to results/sweep_speed.json.
"""

import json
import os
import subprocess
import tempfile
import time
from datetime import date
from pathlib import Path

from peers import POCKET, SHAPES, Job, case_of, in_order, model_folder, trained, typed, write_rows
from running import PTRUN, arguments, keep, kept, results

SEEDS = {20: (1, 2, 3, 4, 5), 6: (1, 2, 3), 2: (1,)}
RATES = {"prefix": (3e-3, 1e-2, 2e-2, 5e-2), "prompt": (3e-3, 1e-2, 3e-2, 1e-1)}


def values(case: dict, runs: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return the seeds and the learning rates of so many runs."""
    return SEEDS[runs], RATES[case["method"]][: runs // len(SEEDS[runs])]


def ours(case: dict, files: dict[str, str], runs: int, *more: str) -> dict:
    """Run the sweep and the report; return seconds and scores."""
    seeds, rates = values(case, runs)
    with tempfile.TemporaryDirectory() as out:
        swept = [f"seed={','.join(map(str, seeds))}", f"train.lr={','.join(map(str, rates))}"]
        began = time.time()
        line = [*PTRUN, "-m", *typed(case, files, out), *swept, *more]
        subprocess.run(line, check=True, capture_output=True)
        swept_s = time.time() - began
        subprocess.run([*PTRUN, "report", out], check=True, capture_output=True)
        seconds = time.time() - began
        found = results(Path(out))
    return {
        "seconds": seconds,
        "trained_s": swept_s,
        "runs": len(found),
        "peak_mib": max(one["manifest"]["peak_memory_mib"] for one in found),
        "accuracies": [one["metrics"]["dev"]["accuracy"] for one in found],
    }


def theirs(case: dict, files: dict[str, str], ordered: str, count: int) -> dict:
    """Run the loop; return seconds and scores. On a CPU its precision is fp32."""
    seeds, rates = values(case, count)
    runs = [{"seed": seed, "lr": lr} for seed in seeds for lr in rates]
    own = case if case["device"] == "cuda" else {**case, "precision": "fp32"}
    found, seconds = trained(own, ordered, files, runs)
    return {
        "seconds": seconds,
        "runs": len(found),
        "peak_mib": found[-1]["peak_mib"],
        "accuracies": [one["accuracy"] for one in found],
    }


def main() -> None:
    """Measure, and add to the result."""
    parser = arguments(__doc__)
    parser.add_argument("--minilm", type=Path)
    parser.add_argument("--shape", default="minilm", choices=SHAPES)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--tokenizer", type=Path, default=POCKET)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--method", default="prefix", choices=RATES)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--runs", type=int, default=20, choices=SEEDS)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--alone", action="store_true")
    given = parser.parse_args()
    os.environ |= {"HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryDirectory() as folder:
        job = Job("few_shot", 16, 32, given.steps)
        files = write_rows(given.data, job, Path(folder))
        model = model_folder(given.shape, given, Path(folder))
        case = case_of(model, given.method, job, given.precision, given.device)
        one = {"date": date.today().isoformat(), "threads": os.cpu_count()}
        one["ours"] = ours(case, files, given.runs)
        print("ours", one["ours"], flush=True)
        if given.alone:
            one["alone"] = ours(case, files, given.runs, "sweep.share=none")
            print("alone", one["alone"], flush=True)
        one["theirs"] = theirs(case, files, in_order(files, job, Path(folder)), given.runs)
    one["ratio"] = one["theirs"]["seconds"] / one["ours"]["seconds"]
    file = given.out / "sweep_speed.json"
    every = kept(file, {})
    shape = "" if (given.shape, given.device) == ("minilm", "cpu") else f" {given.shape}"
    on = "" if given.device == "cpu" else " cuda"
    few = "" if given.runs == 20 else f", {given.runs} runs"
    every[f"{given.method} {given.precision}{shape}{on}{few}"] = one
    keep(file, every)
    print(json.dumps(one, indent=1))


if __name__ == "__main__":
    main()
