"""Test the papers' claims on real pretrained weights and real data, and write a page.

    make weights && make claims-real ARGS="--data DIR"      # goes on where it was interrupted
    python benchmarks/claims_real.py --data DIR --only NER --minutes 60
    python benchmarks/claims_real.py --page                 # the page from stored rows, no runs

Each row of `real_rows.py` is a `ptrun search`: the rates of a method are chosen on dev, with one
seed, then five or ten fresh seeds are scored on test, once each. Rows that
results/claims_real.json has are not repeated; one that has fewer seeds gets the others, at the
rate that was chosen. --jobs rows run at a time, one core each. No new row starts after --minutes.
Writes results/claims_real.{json,md,svg}, claims_real_rows.svg, and the claims that
`ptrun report --paper NAME --to FOLDER` shows.
"""

import argparse
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import fmean
from threading import Lock

from real_files import write_files
from real_page import write_claims, write_page
from real_rows import ROWS, Row
from running import PTRUN, RESULTS, arguments, keep, kept, results

from ptrun.backbone.dropout import RULE

SEEDS = tuple(range(2, 12))  # those that `ptrun search` scores on test
PLACES = argparse.Namespace(
    weights=Path("weights"), data=Path("DIR"), outputs=Path("outputs/claims_real")
)
_STORING = Lock()


def command(row: Row, given: argparse.Namespace, before: dict | None = None) -> list[str]:
    """Return the command line of a row, or of the seeds that its record lacks.

    A row of `lowest` has two: its trials, and with their choice as `before` its seeds.
    """
    folders = {"weights": given.weights, "data": given.data, "files": given.outputs / "files"}
    own = [f"outputs={given.outputs}", f"name={slug(row)}"]
    own += [one.format(**folders) for one in row.options]
    if not any(one.startswith("data_dir=") for one in own):
        own.append(f"data_dir={given.data}")
    if not row.rates:
        return [*PTRUN, "-m", *own, "seed=2"]
    rates, done = (before["rate"], len(before["seeds"])) if before else (row.rates, 0)
    own.append(f"train.lr={rates}")
    if "," not in rates:
        return [*PTRUN, "-m", *own, f"seed={','.join(map(str, SEEDS[done : row.seeds]))}"]
    if row.lowest:
        return [*PTRUN, "-m", *own, "seed=1", "trial={}"]
    return [*PTRUN, "search", *own, "--sampler", "grid", "--seeds", str(row.seeds)]


def chosen(row: Row, folder: Path) -> dict:
    """Return the rate with the lowest `row.lowest` on dev among the trials in a folder."""
    trials = [run for run in results(folder) if run["seed"] == 1]
    if len(trials) < len(row.rates.split(",")):
        raise SystemExit(f"{folder}: {len(trials)} trials of {row.rates}")
    best = min(trials, key=lambda run: run["metrics"]["dev"][row.lowest])
    return {"rate": f"{best['config']['train']['lr']:g}", "seeds": []}


def slug(row: Row) -> str:
    """Return the name of a row's folder; other options have another."""
    content = json.dumps([row.options, row.rates]).encode()
    name = re.sub(r"\W+", "_", row.name).strip("_").lower()
    return f"{name}_{hashlib.sha256(content).hexdigest()[:8]}"


def record(row: Row, folder: Path, took: float, before: dict | None = None) -> dict:
    """Return what the runs of a row left, seed by seed, after those of its record."""
    search, runs = kept(folder / "search.json", {}), results(folder)
    if search:  # the folder may have runs that another version of ptrun named
        runs = [run for run in runs if run["run_id"] in search["runs"]]
    if row.lowest and before:  # its trials lie there too
        rate = float(before["rate"])
        runs = [r for r in runs if r["seed"] in SEEDS and r["config"]["train"]["lr"] == rate]
    runs *= 1 if row.rates else row.seeds  # what trains nothing has one score for all seeds
    facts = [run["manifest"] for run in runs]
    metric = row.lowest or runs[0]["metric"]
    unit = -100 if row.lowest else 1  # higher is better; kl in hundredths of a nat
    scores = {
        part: [round(unit * run["metrics"][part][metric], 2) for run in runs]
        for part in ("test", "dev")
    }
    if before and before["seeds"]:
        seen = len(before["seeds"])
        joined = {s: before[s] + scores[s][-(row.seeds - seen) :] for s in scores}
        rule = before.get("masks", 1)
        return {
            **before,
            **joined,
            "seeds": list(SEEDS[: row.seeds]),
            "masks": RULE if rule == RULE else f"{rule}, {RULE}",
            "minutes": round(before["minutes"] + took / 60, 1),
            "date": datetime.now(UTC).date().isoformat(),
        }
    return {
        "claim": row.claim,
        "row": row.row,
        "date": datetime.now(UTC).date().isoformat(),
        "masks": RULE,
        "metric": f"-100 {metric}" if row.lowest else metric,
        "options": list(row.options),
        "rates": row.rates,
        "rate": (before or {"rate": search.get("winner", {}).get("train.lr")})["rate"]
        or row.rates
        or None,
        "seeds": list(SEEDS[: row.seeds]),
        **scores,
        "learned": runs[0]["learned_parameters"]["total"],
        "tokens_per_second": round(fmean(one.get("tokens_per_second") or 0 for one in facts)),
        "shared": max(len(one.get("shared_with") or ()) + 1 for one in facts),
        "minutes": round(took / 60, 1),
    }


def do(row: Row, given: argparse.Namespace, end: float) -> None:
    """Do the runs that a row lacks and store its record, if there is time to begin."""
    stored = load(given.out)
    before = {name_of(one): one for one in stored}.get(row.name)
    start = time.monotonic()
    if start > end:
        return
    same = [list(row.options), row.rates, list(SEEDS[: row.seeds])]
    for one in stored:  # a row of another claim may be the same search
        if [one["options"], one["rates"], one["seeds"]] == same:
            store(one | {"claim": row.claim, "row": row.row}, given.out)
            return
    log = given.outputs / f"{slug(row)}.log"
    folder = given.outputs / slug(row)
    with log.open("a") as opened:
        call = partial(subprocess.run, stdout=opened, stderr=subprocess.STDOUT, check=False)
        if row.lowest and "," in row.rates and not before:
            call(command(row, given))
            before = chosen(row, folder)
        done = call(command(row, given, before))
    if done.returncode:
        print(f"not finished: {row.name}; see {log}", file=sys.stderr)
        return
    store(record(row, folder, time.monotonic() - start, before), given.out)


def store(made: dict, out: Path) -> None:
    """Put a record into its place, instead of one of the same name."""
    order = [row.name for row in ROWS]
    with _STORING:
        stored = [one for one in load(out) if name_of(one) != name_of(made)] + [made]
        stored.sort(key=lambda one: order.index(name_of(one)))
        keep(out / "claims_real.json", stored)
    print(f"{datetime.now(UTC):%H:%M} {name_of(made)}", flush=True)


def load(out: Path) -> list[dict]:
    """Return the stored records of rows that still exist, with the same options and rates."""
    stored = kept(out / "claims_real.json", [])
    known = {row.name: [list(row.options), row.rates] for row in ROWS}
    return [one for one in stored if known.get(name_of(one)) == [one["options"], one["rates"]]]


def name_of(one: dict) -> str:
    """Return the name of a record's row."""
    return f"{one['claim']}: {one['row']}"


def run(given: argparse.Namespace) -> None:
    """Do the rows that are not stored with all seeds, in order, until the time is over."""
    given.outputs.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60 * given.minutes
    seeds = {name_of(one): len(one["seeds"]) for one in load(given.out)}
    left = [r for r in ROWS if seeds.get(r.name, 0) < r.seeds and r.name.startswith(given.only)]
    if any("{files}" in one for row in left for one in row.options):
        write_files(given.data, given.weights / "smollm2_135m", given.outputs / "files")
    os.environ["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // given.jobs))
    with ThreadPoolExecutor(given.jobs) as pool:
        list(pool.map(lambda row: do(row, given, end), left))


def main() -> None:
    """Run what is left, then write the page."""
    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path, help="folder of the data sets, as data_dir=")
    parser.add_argument("--weights", type=Path, default=Path("weights"))
    parser.add_argument("--outputs", type=Path, default=Path("outputs/claims_real"))
    parser.add_argument("--only", default="", help="rows whose name starts so")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--minutes", type=float, default=600, help="start no row after these")
    parser.add_argument("--page", action="store_true", help="only write the page")
    given = parser.parse_args()
    given.outputs = given.outputs.resolve()
    if not given.page:
        if given.data is None:
            parser.error("--data DIR is needed, with DIR/<task>/{train,validation,test}.jsonl[.gz]")
        run(given)
    stored = load(given.out)
    rows = {row.name: row for row in ROWS}
    done = [replace(rows[name_of(one)], seeds=len(one["seeds"])) for one in stored]
    lines = [command(row, PLACES) for row in done]
    rates = {name_of(one): one["rate"] for one in stored}
    lines += [
        command(row, PLACES, {"rate": rates[row.name], "seeds": []})
        for row in done
        if row.lowest and row.rates
    ]
    typed = [shlex.join(["ptrun", *line[len(PTRUN) :]]) for line in lines]
    write_page(given.out / "claims_real", stored, len(ROWS), typed)
    if given.out == RESULTS:
        write_claims(stored)


if __name__ == "__main__":
    main()
