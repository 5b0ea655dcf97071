"""Measure seconds and memory of `ptrun report --paper all` over 2,000 runs.

    python benchmarks/report_speed.py [--keep FOLDER] [--runs 2000] [--repeats 3]

Writes 2,000 synthetic results for the papers' cells that can be run, with some cells and seeds
missing. Then a new process writes the report with its charts.
Writes results/report_speed.json. --keep FOLDER keeps results and report in that folder instead.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from running import HERE, arguments, keep

from ptrun.papers import experiment as experiments
from ptrun.papers.experiment import Cell, Experiment
from ptrun.papers.rows import Request, Requests

EVALUATIONS = 20
REPORT = """
import sys, time
from ptrun.cli import main
try:
    main()
finally:  # a process inherits ru_maxrss from the one that started it, but not VmHWM
    peak = open("/proc/self/status").read().split("VmHWM:")[1].split()[0]
    print("measured", time.process_time(), peak, file=sys.stderr)
"""


def main() -> None:
    """Measure, print and save."""
    parser = arguments(__doc__)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep results and report here")
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.keep or Path(temporary)
        runs = fill(folder / "outputs", given.runs)
        took = [measured(folder) for _ in range(given.repeats)]
        page = (folder / "report" / "index.html").stat().st_size
    found = {
        "runs": runs,
        "tables": len(experiments.names()),
        "printed numbers": sum(len(experiments.load(n).cells) for n in experiments.names()),
        "processor seconds, median, with start": median(seconds for seconds, _ in took),
        "peak memory, MiB": max(peak for _, peak in took),
        "page, MB": round(page / 1e6, 2),
    }
    print(json.dumps(found, indent=1))
    if not given.keep:
        keep(given.out / "report_speed.json", found)


def measured(folder: Path) -> tuple[float, int]:
    """Return processor seconds, which other work moves little, and MiB of one report."""
    command = [sys.executable, "-c", REPORT, "report", "--paper", "all"]
    command += ["--outputs", str(folder / "outputs"), "--to", str(folder / "report")]
    env = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    if "not counted" in done.stderr:
        sys.exit(f"the report leaves runs out: {done.stderr.splitlines()[0]}")
    seconds, peak = done.stderr.split()[-2:]
    return round(float(seconds), 2), round(int(peak) / 1024)


def fill(outputs: Path, wanted: int) -> int:
    """Write so many runs, the same ones each time; return their number."""
    dice, written = random.Random(8), 0
    loaded = [experiments.load(name) for name in experiments.names()]
    requests = Requests(outputs)
    runnable = {(own.name, c.key): (own, c) for own in loaded for c in own.cells if _run(own, c)}
    while written < wanted:  # all cells once, then again with other configurations
        for own, cell in dice.sample(list(runnable.values()), k=len(runnable)):
            if written < wanted:
                written += add(outputs, own, cell, requests.of(own, cell), dice)
    outputs.mkdir(exist_ok=True)
    requests.save()  # as a first report does
    return written


def _run(own: Experiment, cell: Cell) -> bool:
    return own.reason(cell) is None and not any(rule.holds(cell.at) for rule in own.of)


def add(outputs: Path, own: Experiment, cell: Cell, request: Request, dice: random.Random) -> int:
    """Write most seeds of a cell under one protocol."""
    protocol = dice.choice(("paper", "paper", "paper", "honest"))
    middle = min(float(cell.value or 80) + dice.gauss(-0.4, 0.8), 99.5)
    seeds = [seed for seed in own.seeds if dice.random() < 0.95]
    form = dice.randrange(10**6)
    for seed in seeds:
        score = min(middle + dice.gauss(0, 0.7), 100.0)
        run_id = f"made-{protocol}-{form}-s{seed}"
        folder = outputs / own.name / cell.key / run_id
        folder.mkdir(parents=True, exist_ok=True)
        content = made(own, cell, protocol, seed, score, dice)
        content |= {"run_id": run_id, "group": str(form)}
        grid = {key: values[form % len(values)] for key, values in own.searched(cell).items()}
        content["config"] = {**request.settings, **grid, "seed": seed}
        content["names"] = {**request.names, "protocol": protocol}
        (folder / "result.json").write_text(json.dumps(content), encoding="utf-8")
    return len(seeds)


def made(
    own: Experiment, cell: Cell, protocol: str, seed: int, score: float, dice: random.Random
) -> dict[str, object]:
    """Return a result in the form of a run's, with a manifest of usual size."""
    known = {name: key.rpartition(".")[2] for name, key in own.metrics.items()}
    metric = known.get(cell.metric, cell.metric)
    history = [
        {"step": 50 * n, metric: score - 8 * 0.7**n + dice.gauss(0, 0.4), "loss": 0.5}
        for n in range(1, EVALUATIONS + 1)
    ]
    scores = dict.fromkeys((metric, *known.values()), score)
    return {
        "status": "finished",
        "seed": seed,
        "metric": metric,
        "metrics": {"dev": scores, "test": scores},
        "learned_parameters": {"total": 334_094_338 if "FT" in cell.at["method"] else 1_204_226},
        "manifest": {"seconds": 900 + 300 * dice.random(), "history": history},
        "schema": 1,
    }


if __name__ == "__main__":
    main()
