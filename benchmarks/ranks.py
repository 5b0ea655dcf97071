"""Compare the processor time of a step on two ranks with that of one process, on a CPU.

    python benchmarks/ranks.py [--model NAME_OR_FOLDER ...] [--repeats 3]
        [--layouts NAME ...] [--steps 40 140]

P-tuning v2 on pocket_sentiment, batches of 16, fp32. A step's time is the difference between a
short and a long run, user and system time of all processes; `start` is what the short run takes.
The layouts take turns, and the median of the repeats counts. Adds to results/ranks.json.
"""

import resource
import subprocess
import tempfile
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

from running import PTRUN, arguments, keep, kept

LAYOUTS = {
    "one": ["hardware=cpu"],
    "zero1_2": ["hardware=zero1", "hardware.device=cpu", "hardware.ranks=2"],
    "model_parallel_2": ["hardware=zero1", "hardware.device=cpu", "hardware.model_parallel=2"],
}


def used(model: str, layout: str, steps: int) -> float:
    """Return the processor seconds of a run."""
    chosen = f"backbone.path={model}" if Path(model).is_dir() else f"backbone={model}"
    own = ["method=ptuning_v2", "task=pocket_sentiment", chosen, "train.batch_size=16"]
    own += ["hardware.precision=fp32", f"train.max_steps={steps}", f"train.eval_every={steps}"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as out:
        line = [*PTRUN, *own, *LAYOUTS[layout], f"outputs={out}"]
        subprocess.run(line, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def seconds(model: str, layout: str, few: int, many: int) -> tuple[float, float]:
    """Return the processor seconds of the short run, and of a step."""
    start = used(model, layout, few)
    return start, (used(model, layout, many) - start) / (many - few)


def summary(turns: list[tuple[float, float]]) -> dict[str, Any]:
    """Return the medians of the repeats, and every step's time."""
    starts, steps = zip(*turns, strict=True)
    each = [round(1000 * step, 1) for step in steps]
    return {"ms_a_step": median(each), "each": each, "start_s": round(median(starts), 1)}


def main() -> None:
    """Measure each model in each layout, and add to the result."""
    parser = arguments(__doc__)
    parser.add_argument("--model", nargs="+", default=["pocket_bert", "weights/minilm_l6"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=list(LAYOUTS))
    parser.add_argument("--steps", nargs=2, type=int, default=[40, 140], help="of both runs")
    asked = parser.parse_args()
    file = asked.out / "ranks.json"
    for model in asked.model:
        turns = [
            {layout: seconds(model, layout, *asked.steps) for layout in asked.layouts}
            for _ in range(asked.repeats)
        ]
        found = {layout: summary([turn[layout] for turn in turns]) for layout in asked.layouts}
        for layout, own in found.items():
            if "one" in found:
                own["times_one"] = round(own["ms_a_step"] / found["one"]["ms_a_step"], 2)
            print(model, layout, own, flush=True)
        measured = {"date": date.today().isoformat(), "layouts": found}
        keep(file, {**kept(file, {}), Path(model).name: measured})


if __name__ == "__main__":
    main()
