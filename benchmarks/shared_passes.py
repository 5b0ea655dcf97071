"""Compare 20 runs that share passes with the same 20 runs alone, for each method.

    python benchmarks/shared_passes.py [--steps 40] [--methods adapter,idpg]

Five seeds and four learning rates, 32 examples a class, batches of 16, pocket world, fp32. Writes
results/shared_passes.json: metrics that differ, the largest difference of a loss, and the seconds
of both sweeps.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RESULT = Path(__file__).parent / "results" / "shared_passes.json"
PROMPT_RATES = "1e-3,3e-3,1e-2,3e-2"
SMALL_RATES = "1e-4,3e-4,1e-3,3e-3"  # around these methods' default; at 3e-2 rounding grows to 0.05
METHODS = {
    "ptuning_v2": PROMPT_RATES,
    "prompt_tuning": PROMPT_RATES,
    "ptuning": SMALL_RATES,
    "idpg": SMALL_RATES,
    "adapter": SMALL_RATES,
    "lora": SMALL_RATES,
}


def sweep(method: str, share: str, steps: int, outputs: Path) -> float:
    """Do 20 runs; return the seconds."""
    line = [str(Path(sys.executable).parent / "ptrun"), "-m", f"method={method}"]
    line += ["task=pocket_sentiment", "seed=range(1,6)", f"train.lr={METHODS[method]}"]
    line += ["setting=few_shot_32", "train.batch_size=16", f"train.max_steps={steps}"]
    line += [f"train.eval_every={steps // 4}", f"outputs={outputs}", f"sweep.share={share}"]
    began = time.monotonic()
    subprocess.run(line, check=True, capture_output=True)
    return round(time.monotonic() - began, 1)


def results(outputs: Path) -> dict[str, tuple[dict, list[float]]]:
    """Return the metrics and the losses of each run."""
    found = {}
    for file in outputs.rglob("result.json"):
        rows = [json.loads(line) for line in (file.parent / "metrics.jsonl").open()]
        losses = [row["loss"] for row in rows if row["event"] == "step"]
        found[file.parent.name] = json.loads(file.read_text())["metrics"], losses
    return found


def compared(method: str, steps: int) -> dict:
    """Do both sweeps of a method and compare them."""
    with tempfile.TemporaryDirectory() as folder:
        shared, alone = Path(folder, "shared"), Path(folder, "alone")
        times = [sweep(method, "auto", steps, shared), sweep(method, "none", steps, alone)]
        one, other = results(shared), results(alone)
    assert one.keys() == other.keys()
    pairs = [(one[name], other[name]) for name in one]
    return {
        "runs": len(pairs),
        "other_metrics": sum(a[0] != b[0] for a, b in pairs),
        "largest_difference_of_losses": max(
            abs(x - y) for a, b in pairs for x, y in zip(a[1], b[1], strict=True)
        ),
        "largest_difference_at_the_end": max(abs(a[1][-1] - b[1][-1]) for a, b in pairs),
        "seconds_shared": times[0],
        "seconds_alone": times[1],
    }


def main() -> None:
    """Compare all methods and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument(
        "--methods", default=",".join(METHODS), help="the others keep their figures"
    )
    given = parser.parse_args()
    told = json.loads(RESULT.read_text())
    for method in given.methods.split(","):
        told[method] = compared(method, given.steps)
        print(method, json.dumps(told[method]), flush=True)
        RESULT.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
