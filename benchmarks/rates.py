"""Choose the default rates of LoRA and adapters: each rate of a grid, on dev alone.

    python benchmarks/rates.py --data DIR --weights DIR [--only NAME ...]

A rate is scored on tasks that no claim uses. The default is the lowest rate whose mean of dev over
tasks and seeds is within a point of the best mean. Test is scored for one run of each search and
read by nothing here. Runs that are finished in --outputs are not repeated. Writes
results/rates.{md,json}; the rates themselves are in conf/backbone.
"""

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean

from running import arguments, keep, ptrun

METHODS = ("lora", "adapter")
NEAR = 1.0  # points of dev
SEEDS = (1,)
STEPS, SIZE = 100, 16
_TRAIN = (
    f"train.max_steps={STEPS}",
    f"train.batch_size={SIZE}",
    f"train.eval_every={STEPS // 2}",
    "train.eval_rows=300",
)
_MINILM = ("task.max_tokens=64", "readout.pooler=mean")
POCKET, SMALL = "5e-4,2e-3,5e-3,1e-2,2e-2,5e-2", "1e-4,3e-4,1e-3,3e-3,1e-2"
TASKS = {
    "minilm_l6": ("subj", "mr"),
    "pocket_bert": ("pocket_sentiment", "pocket_ner"),
    "pocket_gpt2": ("pocket_sentiment", "pocket_topics"),
    "pocket_t5": ("pocket_sentiment", "pocket_topics"),
}


def search(backbone: str, method: str, task: str, seed: int, given: argparse.Namespace) -> dict:
    """Run every rate of one seed; return the dev score of each rate."""
    name = f"{backbone}-{method}-{task}-{seed}"
    rates, place = POCKET, ()
    if not backbone.startswith("pocket_"):
        rates = SMALL
        place = (f"backbone.path={given.weights}/{backbone}", f"data_dir={given.data}", *_MINILM)
    number = str(len(rates.split(",")))
    line = [f"method={method}", f"backbone={backbone}", f"task={task}", f"seed={seed}"]
    options = ["--sampler", "grid", "--trials", number, "--together", number, "--seeds", "1"]
    where = [f"outputs={given.outputs}", f"name={name}"]
    ptrun(
        "search",
        *line,
        *place,
        *_TRAIN,
        "train.eval_rows=300",
        f"train.lr={rates}",
        *options,
        *where,
    )
    trials = [
        json.loads(f.read_text()) for f in (given.outputs / name).rglob("trials/*/result.json")
    ]
    return {
        f"{run['config']['train']['lr']:g}": round(run["metrics"]["dev"][run["metric"]], 2)
        for run in sorted(trials, key=lambda run: run["config"]["train"]["lr"])
    }


def main() -> None:
    """Run, store and print."""
    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path, help="folder of subj and mr")
    parser.add_argument("--weights", type=Path, default=Path("weights"), help="of make weights")
    parser.add_argument("--outputs", type=Path, default=Path("outputs/rates"))
    parser.add_argument("--only", nargs="+", default=[*TASKS], choices=TASKS, metavar="BACKBONE")
    given = parser.parse_args()
    rows = []
    for seed in SEEDS:
        for backbone in given.only:
            for task in TASKS[backbone]:
                for method in METHODS:
                    dev = search(backbone, method, task, seed, given)
                    row = {"backbone": backbone, "method": method, "task": task, "seed": seed}
                    rows.append({**row, "dev": dev})
                    print(rows[-1], flush=True)
    figures = {"date": datetime.now(UTC).date().isoformat(), "steps": STEPS, "size": SIZE}
    figures |= {"seeds": f"seed {', '.join(map(str, SEEDS))}", "rows": rows}
    keep(given.out / "rates.json", figures)
    (given.out / "rates.md").write_text(page(figures), encoding="utf-8")


_HEAD = """\
# Rates of LoRA and adapters

Dev scores on tasks that no claim uses: {steps} steps of {size} rows, {seeds}. `make weights` makes
MiniLM-L6, whose texts are cut to 64 tokens and read by their mean; pocket models are shipped.
`python benchmarks/rates.py --data DIR --weights DIR`, {date}. **Bold**: the
default rate of the model in `conf/backbone`, the lowest one within a point of the best mean.
"""


def page(figures: dict) -> str:
    """Return the page: for each backbone the mean dev score of each rate."""
    rows, text = figures["rows"], _HEAD.format(**figures)
    for backbone in dict.fromkeys(row["backbone"] for row in rows):
        of_backbone = [row for row in rows if row["backbone"] == backbone]
        rates = list(of_backbone[0]["dev"])
        text += f"\n## {backbone}\n\n| method | task | {' | '.join(rates)} |\n"
        text += "|---|---|" + "---|" * len(rates) + "\n"
        for method in METHODS:
            runs = [row for row in of_backbone if row["method"] == method]
            for task in dict.fromkeys(row["task"] for row in runs):
                of_task = [row["dev"] for row in runs if row["task"] == task]
                means = [fmean(dev[rate] for dev in of_task) for rate in rates]
                text += f"| {method} | {task} | {' | '.join(f'{m:.2f}' for m in means)} |\n"
            means = [fmean(row["dev"][rate] for row in runs) for rate in rates]
            default = rates.index(f"{best(rows, backbone, method):g}")
            shown = [f"**{m:.2f}**" if i == default else f"{m:.2f}" for i, m in enumerate(means)]
            text += f"| {method} | mean | {' | '.join(shown)} |\n"
    return text


def best(rows: list[dict], backbone: str, method: str) -> float:
    """Return the lowest rate whose mean of dev is within a point of the best mean."""
    runs = [row["dev"] for row in rows if (row["backbone"], row["method"]) == (backbone, method)]
    means = {float(rate): fmean(dev[rate] for dev in runs) for rate in runs[0]}
    return min(rate for rate, mean in means.items() if mean >= max(means.values()) - NEAR)


if __name__ == "__main__":
    main()
