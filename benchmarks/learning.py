"""Check that the methods learn, in the order the papers claim: several seeds, honest protocol.

    python benchmarks/learning.py [--data DIR --models DIR] [--seeds 1,2] [--only NAME ...]

Pocket rows run offline on the shipped backbones. Rows on real data need --data with the data sets
and --models with the small models. Every row is a `ptrun` run. Finished runs in --outputs are not
repeated. Writes results/learning.{md,json}, which also list the claims that do not hold.
"""

import argparse
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, stdev

from claims import CLAIMS, Claim
from running import arguments, keep, kept, masks, ptrun

from ptrun.backbone.dropout import RULE

NEAR = 2.0  # points below a row's best seed, as in DPT's Figures 2 and 3


def scores(claim: Claim, row: str, given: argparse.Namespace) -> list[dict]:
    """Run one row with every seed; return its results in the order of the seeds."""
    place = [f"data_dir={given.data}", f"backbone.path={given.models}/{claim.needs}"]
    own = [*claim.common, *claim.rows[row], *(place if claim.needs else [])]
    if claim.first:
        before = sweep([*claim.first], f"first {claim.name}", given)
        done = next(before.glob("*/result.json")).parent.resolve()
        own = [part.replace("{first}", str(done)) for part in own]
    folder = sweep([*own, f"seed={given.seeds or claim.seeds}"], f"{claim.name}-{row}", given)
    results = [{**json.loads(f.read_text()), "day": day(f)} for f in folder.rglob("result.json")]
    wanted = [int(seed) for seed in (given.seeds or claim.seeds).split(",")]
    return sorted((r for r in results if r["seed"] in wanted), key=lambda run: run["seed"])


def day(file: Path) -> str:
    """Return the date of a result file."""
    return datetime.fromtimestamp(file.stat().st_mtime, UTC).date().isoformat()


def sweep(line: list[str], name: str, given: argparse.Namespace) -> Path:
    """Run what is not finished; return the runs' folder."""
    slug = re.sub(r"\W+", "_", name).strip("_")
    ptrun("-m", *line, *given.set, f"outputs={given.outputs}", f"name={slug}")
    return Path(given.outputs) / slug


def results(claim: Claim, given: argparse.Namespace) -> list[dict]:
    """Return the rows of a claim, with the difference of each row to the first."""
    found: list[dict] = []
    for row in claim.rows:
        runs = scores(claim, row, given)
        tests = [run["metrics"]["test"][run["metric"]] for run in runs]
        found.append(
            {
                "claim": claim.name,
                "says": claim.says,
                "row": row,
                "date": max(run["day"] for run in runs),
                "masks": RULE,
                "seeds": [run["seed"] for run in runs],
                "metric": runs[0]["metric"],
                "test": [round(score, 2) for score in tests],
                "mean": round(fmean(tests), 2),
                "std": round(stdev(tests), 2) if len(tests) > 1 else None,
                "near": sum(max(tests) - score <= NEAR for score in tests),
                "learned": runs[0]["learned_parameters"]["total"],
                "seconds": round(fmean(run["manifest"]["seconds"] for run in runs), 1),
                **(against(found[0]["test"], tests) if found and len(tests) > 1 else {}),
            }
        )
    return found


def against(base: list[float], tests: list[float]) -> dict:
    """Return the mean difference over seeds, its standard error and the verdict."""
    apart = [a - b for a, b in zip(tests, base, strict=True)]
    gain, error = fmean(apart), stdev(apart) / len(apart) ** 0.5
    if abs(gain) <= 2 * error:
        return {"gain": round(gain, 2), "error": round(error, 2), "here": "no clear difference"}
    here = "holds" if gain > 0 else "DOES NOT HOLD"
    return {"gain": round(gain, 2), "error": round(error, 2), "here": here}


def table(rows: list[dict]) -> str:
    """Return the rows as Markdown."""
    lines = [
        "A gain is the mean difference over seeds to the claim's first row, with its standard",
        "error. Less than two standard errors is no clear difference. Near: seeds within 2 points",
        f"of the row's best. Dropout: {masks(rows)}.",
        "",
        "| task | row | test | near | learned | s/run | gain | the paper says | here |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        spread = f"{row['mean']:.2f}" + (f" ± {row['std']:.2f}" if row["std"] is not None else "")
        near = f"{row['near']}/{len(row['test'])}"
        says = " |  | "
        if "here" in row:
            says = f"{row['gain']:+.2f} ± {row['error']:.2f} | {row['says']} | {row['here']}"
        lines.append(
            f"| {row['claim']} | {row['row']} | {row['metric']} {spread} | "
            f"{near} | {row['learned']:,} | {row['seconds']:.0f} | {says} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the claims and write the results."""
    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--models", type=Path)
    parser.add_argument("--seeds", help="for every claim; default: each claim's own")
    parser.add_argument("--outputs", type=Path, default=Path("outputs/learning"))
    parser.add_argument("--only", nargs="*", help="names of claims; default: all")
    parser.add_argument("--set", nargs="+", default=[], help="options of every run")
    given = parser.parse_args()
    for claim in CLAIMS:
        there = not claim.needs or (given.models and (given.models / claim.needs).is_dir())
        if there and (not given.only or claim.name in given.only):
            write(results(claim, given), given.out)
    print((given.out / "learning.md").read_text())


def write(rows: list[dict], out: Path) -> None:
    """Save the rows of a claim; they replace older ones, in the order of CLAIMS."""
    file = out / "learning.json"
    others = [r for r in kept(file, []) if r["claim"] != rows[0]["claim"]]
    order = [claim.name for claim in CLAIMS]
    found = sorted(others + rows, key=lambda row: order.index(row["claim"]))
    keep(file, found)
    (out / "learning.md").write_text(table(found))


if __name__ == "__main__":
    main()
