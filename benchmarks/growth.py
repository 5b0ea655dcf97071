"""Measure how processor time and memory grow with the work, in one sitting.

    python benchmarks/growth.py [PART ...] [--quick | --sizes N ...]

Parts: report, sweep, rows, classes, texts, worker. Each part runs whole commands at several sizes
and takes the processor seconds of the command with its children and the peak memory of its largest
process. Writes results/growth.json and results/growth.md with the exponent of what is above the
smallest size. --quick leaves out the largest sizes.
"""

import argparse
import json
import math
import os
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from peers import POCKET, model_folder
from running import PTRUN, arguments, keep, kept

from ptrun.folder.digest import of_plain
from ptrun.folder.result import write_json

ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
SENTENCE = "a slow warm film of great cold plots with no bright end but many good dull odd turns"
WORDS = SENTENCE.split()


@dataclass
class Cost:
    """What a command took: its size, processor seconds, and the peak MiB of a process."""

    size: int
    seconds: float
    mib: float


def measured(size: int, *typed: str, allowed: tuple[int, ...] = (0,)) -> Cost:
    """Run a command of ptrun on one thread, and return what it took."""
    code = (
        "import json, resource, subprocess, sys\n"
        "done = subprocess.run(sys.argv[1:], capture_output=True, text=True)\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(json.dumps([done.returncode, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024,"
        " done.stderr[-2000:]]))"
    )
    line = [sys.executable, "-c", code, *PTRUN, *typed]
    said = subprocess.run(line, capture_output=True, text=True, check=True, env=ONE_THREAD).stdout
    status, seconds, mib, errors = json.loads(said)
    if status not in allowed:
        sys.exit(f"{' '.join(typed)}: exit code {status}\n{errors}")
    return Cost(size, round(seconds, 2), round(mib))


def real_result(folder: Path) -> dict:
    """Do a run of two steps, and return its result."""
    template = folder / "template"
    subprocess.run([*PTRUN, f"outputs={template}", "train.max_steps=2"], check=True, env=ONE_THREAD)
    (one,) = template.rglob("result.json")
    return json.loads(one.read_text(encoding="utf-8"))


def report(folder: Path, sizes: list[int]) -> Iterator[Cost]:
    """`ptrun report` over runs that all have another learning rate."""
    content = real_result(folder)
    for size in sizes:
        outputs = folder / str(size)
        for number in range(size):
            run_id = f"{content['run_id'].rpartition('-s')[0]}{number:06}-s1"
            config = {**content["config"], "train": {**content["config"]["train"]}}
            config["train"]["lr"] = 1e-3 + number * 1e-6
            run = outputs / content["config"].get("name", "runs") / run_id
            run.mkdir(parents=True)
            own = {**content, "run_id": run_id, "group": f"{number:08x}", "config": config}
            write_result(run, own)
        yield measured(size, "report", str(outputs))


def write_result(folder: Path, content: dict) -> None:
    """Write the result of a run that did not happen, with its digest."""
    content = {key: value for key, value in content.items() if key != "digest"}
    write_json(folder / "result.json", {**content, "digest": of_plain(content)})


def dry_run(folder: Path, sizes: list[int]) -> Iterator[Cost]:
    """A sweep over learning rates that is only planned."""
    for size in sizes:
        rates = ",".join(f"{1e-3 + n * 1e-6:.6f}" for n in range(size))
        typed = ["-m", f"outputs={folder}", f"train.lr={rates}", "sweep.dry_run=true"]
        yield measured(size, *typed)


def again(folder: Path, sizes: list[int]) -> Iterator[Cost]:
    """A finished sweep whose command is typed again."""
    from ptrun.config.compose import compose_run
    from ptrun.runs.plan import plan

    content = real_result(folder)
    for size in sizes:
        outputs = folder / str(size)
        rates = [f"{1e-3 + n * 1e-6:.6f}" for n in range(size)]
        for rate in rates:
            run = compose_run([f"outputs={outputs}", f"train.lr={rate}"]).in_sweep()
            planned = plan(run)
            planned.folder.mkdir(parents=True)
            own = {**content, "run_id": planned.run_id, "group": planned.group}
            own["config"] = planned.content
            write_result(planned.folder, own)
        yield measured(size, "-m", f"outputs={outputs}", f"train.lr={','.join(rates)}")


def texts_of(count: int, dice: random.Random, words: int = 8) -> Iterator[str]:
    """Yield texts that differ."""
    for number in range(count):
        yield f"{' '.join(dice.choices(WORDS, k=words))} {number}"


def table(file: Path, count: int, labels: int, words: int = 8) -> Path:
    """Write a table of `count` rows with so many labels."""
    dice = random.Random(f"{file.stem} {count}")
    with file.open("w", encoding="utf-8") as written:
        written.write("text,label\n")
        for number, text in enumerate(texts_of(count, dice, words)):
            written.write(f"{file.stem} {text},c{number % labels}\n")
    return file


def rows(folder: Path, sizes: list[int]) -> Iterator[Cost]:
    """20 steps on a table of so many training rows, with 500 rows for dev and for test."""
    dev, test = table(folder / "dev.csv", 500, 2), table(folder / "test.csv", 500, 2)
    for size in sizes:
        train = table(folder / f"train{size}.csv", size, 2)
        own = [f"task.train={train}", f"task.dev={dev}", f"task.test={test}"]
        steps = ["train.max_steps=20", "train.batch_size=32", f"outputs={folder / str(size)}"]
        yield measured(size, "task=csv", *own, "task.text=text", "task.label=label", *steps)


def classes(folder: Path, sizes: list[int]) -> Iterator[Cost]:
    """Two steps, and predictions of 100,000 rows among so many classes."""
    for size in sizes:
        train = table(folder / f"train{size}.csv", 10_000, size, 3)
        dev = table(folder / f"dev{size}.csv", 100_000, size, 3)
        test = table(folder / f"test{size}.csv", 1_000, size, 3)
        own = [f"task.train={train}", f"task.dev={dev}", f"task.test={test}"]
        steps = ["train.max_steps=2", "train.batch_size=32", f"outputs={folder / str(size)}"]
        yield measured(size, "task=csv", *own, "task.text=text", "task.label=label", *steps)


def long_texts(folder: Path, sizes: list[int]) -> Iterator[Cost]:
    """`check` of 1,000 texts of so many words."""
    for size in sizes:
        train = table(folder / f"long{size}.csv", 1000, 2, size)
        own = [f"task.train={train}", "task.text=text", "task.label=label"]
        yield measured(size, "check", "task=csv", *own, f"outputs={folder}")


def worker(folder: Path, sizes: list[int]) -> Iterator[Cost]:
    """Fine-tunings of a model of 90 MB, one after the other in one worker."""
    model = model_folder("minilm", argparse.Namespace(tokenizer=POCKET), folder)
    for size in sizes:
        own = [f"seed=range(1,{size + 1})", f"backbone.path={model}", "task=pocket_sentiment"]
        short = ["setting=few_shot_32", "train.max_steps=1", f"outputs={folder / str(size)}"]
        yield measured(size, "-m", "method=fine_tuning", *own, *short)


PARTS: dict[str, tuple[Callable[[Path, list[int]], Iterator[Cost]], list[int], int]] = {
    "report": (report, [100, 1000, 10_000], 2),
    "dry_run": (dry_run, [100, 1000], 2),
    "again": (again, [100, 1000, 5000], 2),
    "rows": (rows, [1000, 10_000, 100_000, 1_000_000], 3),
    "classes": (classes, [2, 100, 1000], 2),
    "long_texts": (long_texts, [100, 1000, 10_000], 2),
    "worker": (worker, [4, 20, 100], 2),
}
"""A part: its function, its sizes, and how many of them --quick takes."""


def page(found: dict) -> str:
    """Return the page of all parts."""
    lines = ["# How cost grows with the work", "", str(__doc__).split("\n\n")[2], ""]
    lines += ["| part | sizes | processor s | peak MiB | exponent |", "|---|---|---|---|---|"]
    for name, own in found.items():
        costs = [Cost(**one) for one in own["costs"]]
        columns = [
            " / ".join(f"{c.size:,}" for c in costs),
            " / ".join(f"{c.seconds:g}" for c in costs),
            " / ".join(f"{c.mib:g}" for c in costs),
            exponent(costs),
        ]
        lines.append(f"| {name} | {' | '.join(columns)} |")
    return "\n".join([*lines, ""])


def exponent(costs: list[Cost]) -> str:
    """Return the growth of the seconds above the smallest size, between the two largest ones."""
    if len(costs) < 3:
        return ""
    low, high, base = costs[-2], costs[-1], costs[0]
    above, most = low.seconds - base.seconds, high.seconds - base.seconds
    if min(above, most) <= 0.5:
        return "flat"
    return f"{math.log(most / above) / math.log(high.size / low.size):.2f}"


def main() -> None:
    """Measure the parts, and add them to the page."""
    parser = arguments(__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="leave out the largest sizes")
    parser.add_argument("--sizes", nargs="+", type=int, help="in place of a part's own")
    given = parser.parse_args()
    if unknown := set(given.parts) - PARTS.keys():
        parser.error(f"no part {unknown.pop()}; allowed: {', '.join(PARTS)}")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    found = kept(given.out / "growth.json", {})
    for name in given.parts or PARTS:
        part, sizes, few = PARTS[name]
        chosen, costs = given.sizes or sizes[: few if given.quick else None], []
        with tempfile.TemporaryDirectory() as folder:
            for cost in part(Path(folder), chosen):
                print(name, cost, flush=True)
                costs.append(vars(cost))
        found[name] = {"date": date.today().isoformat(), "costs": costs}
    if not given.quick:
        keep(given.out / "growth.json", found)
        (given.out / "growth.md").write_text(page(found), encoding="utf-8")


if __name__ == "__main__":
    main()
