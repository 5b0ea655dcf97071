"""Kill a sweep of 60 runs again and again until it is done, and compare with an undisturbed one.

    python benchmarks/soak.py [--share auto|none] [--seed 1] [--seeds 20] [--least 5 --most 15]

Three methods and 20 seeds on the pocket world. Every few seconds SIGKILL, SIGTERM or SIGUSR1 hits
the command or one of its workers, and the same command starts again. Lost runs must be 0 and all
tensors equal, with sharing and without. Adds to results/soak.json.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from safetensors.torch import load_file

RESULT = Path(__file__).parent / "results" / "soak.json"
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGUSR1)


def command(outputs: Path, share: str, seeds: int) -> list[str]:
    """Return the sweep."""
    line = [str(Path(sys.executable).parent / "ptrun"), "-m", "task=pocket_sentiment"]
    line += ["method=ptuning_v2,prompt_tuning,fine_tuning", f"seed=range(1,{seeds + 1})"]
    line += ["train.max_steps=40", "train.eval_every=10", "train.batch_size=8"]
    return [*line, "setting=few_shot_32", f"outputs={outputs}", f"sweep.share={share}"]


def processes(parent: int) -> list[int]:
    """Return a command and its workers."""
    children = Path(f"/proc/{parent}/task/{parent}/children")
    try:
        return [parent, *map(int, children.read_text().split())]
    except OSError:
        return []


def ended(running: subprocess.Popen, seconds: float) -> int | None:
    """Return the exit code of a process that ends within some seconds."""
    try:
        return running.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return None


def disturbed(line: list[str], draw: random.Random, between: tuple[float, float]) -> dict:
    """Start the command until it ends by itself; return how often it was hit."""
    hits: dict[str, int] = {}
    starts, began = 0, time.monotonic()
    while True:
        starts += 1
        running = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while (code := ended(running, draw.uniform(*between))) is None:
            number = draw.choice(SIGNALS)
            if found := processes(running.pid):
                os.kill(draw.choice(found), number)
                hits[number.name] = hits.get(number.name, 0) + 1
        if code == 0:
            return {"starts": starts, "hits": hits, "seconds": round(time.monotonic() - began)}


def tensors(outputs: Path) -> dict[str, dict]:
    """Return the results of all runs, and the learned tensors of those that keep them."""
    found = {}
    for file in sorted(outputs.rglob("result.json")):
        prompt = file.parent / "prompt.safetensors"
        metrics = json.loads(file.read_text())["metrics"]
        journal = [json.loads(line) for line in (file.parent / "metrics.jsonl").open()]
        steps = [row["step"] for row in journal if row["event"] == "step"]
        found[file.parent.name] = {
            "metrics": metrics,
            "steps": steps,
            "tensors": load_file(prompt) if prompt.exists() else {},
        }
    return found


def main() -> None:
    """Do both sweeps, compare, and add to the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--share", default="none", choices=("none", "auto"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--least", type=float, default=5.0)
    parser.add_argument("--most", type=float, default=15.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        calm, rough = Path(folder, "calm"), Path(folder, "rough")
        subprocess.run(command(calm, given.share, given.seeds), check=True, capture_output=True)
        told = disturbed(
            command(rough, given.share, given.seeds),
            random.Random(given.seed),
            (given.least, given.most),
        )
        a, b = tensors(calm), tensors(rough)
    lost = sorted(a.keys() - b.keys())
    pairs = [(a[name], b[name]) for name in a.keys() & b.keys()]
    off = [
        float((one["tensors"][key] - other["tensors"][key]).abs().max())
        for one, other in pairs
        for key in one["tensors"]
    ]
    told |= {"runs": len(a), "lost": len(lost), "largest_difference": max(off, default=0.0)}
    told["other_metrics"] = sum(one["metrics"] != other["metrics"] for one, other in pairs)
    told["double_steps"] = sum(len(set(o["steps"])) != len(o["steps"]) for _, o in pairs)
    kept = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    kept[f"share={given.share}"] = told
    RESULT.write_text(json.dumps(kept, indent=1) + "\n")
    print(json.dumps(told, indent=1))
    sys.exit(1 if lost or told["double_steps"] else 0)


if __name__ == "__main__":
    main()
