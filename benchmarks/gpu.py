"""Accept a GPU in 20 minutes: numerics, equality with the CPU, speed, memory, resuming.

    make gpu                                 on a CUDA device, with torch and no network
    make gpu ARGS=--small                    the same parts on a CPU, in miniature
    make gpu ARGS=--disguised                in miniature on a CUDA device that is not there

Each part is a process with a time limit of its own; one that fails does not stop the others. The
last line that a part prints is a JSON object of figures. Writes results/gpu.{json,md}; a miniature
writes results/gpu_small.{json,md}, one on the disguised device (tests/cuda) results/gpu_disguised.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results"
_TAIL = 12  # lines of a failed part on the page
FULL, SMALL, DISGUISED = "full", "small", "disguised"
LONGER = {FULL: 1, SMALL: 3, DISGUISED: 10}
"""How many times its limit a part may take: a CPU may be busy, and a disguise is slow."""
TITLES = {
    FULL: "One GPU, part by part",
    SMALL: "`make gpu` in miniature, on a CPU",
    DISGUISED: "`make gpu` in miniature, on a CUDA device that is not there",
}


@dataclass(frozen=True)
class Part:
    """A part: what it shows, its command on a GPU and in miniature, and its limit in seconds.

    `moves` says whether the miniature takes `--device`, `disguises` whether it works on a device
    that is not there. A part sees `devices` devices: a peer's trainer would use all.
    """

    name: str
    shows: str
    command: str
    small: str
    limit: int
    moves: bool = True
    disguises: bool = True
    devices: int = 1

    def line(self, how: str, out: str) -> list[str]:
        """Return its command line; `out` is a folder for its own files."""
        command = self.command if how == FULL else self.small
        own = ["--device", "cuda"] if how == DISGUISED and self.moves else []
        file, *rest = command.replace("OUT", out).split()
        return [sys.executable, str(HERE / file), *rest, *own]


def _own(name: str, shows: str, limit: int, **more: Any) -> Part:
    return Part(name, shows, f"gpu_parts.py {name}", f"gpu_parts.py {name} --small", limit, **more)


_BERT = "--device cuda --precision bf16 --repeats 1 --methods prefix,prompt --jobs sst2"
_XXL = "t5_xxl.py --members 1 --steps 4 --batch 16 32 --quantization none int8 nf4 --out OUT"
PARTS = (
    _own("environment", "versions, device, memory, peak of a bf16 product", 40),
    _own("numerics", "every family against the CPU in fp32: outputs and gradients", 180),
    Part(
        "kernel",
        "attention in one kernel against plain attention: error, time, memory",
        "attention_kernel.py",
        "attention_kernel.py --small",
        120,
        moves=False,
    ),
    _own("equality", "losses of one run on the CPU and on the device", 90),
    _own("together", "rows of six runs that share passes against each run alone", 240),
    _own("resume", "a run that is killed and resumed ends with the same bits", 120),
    # The disguise counts waits by itself: make cuda-grid.
    _own(
        "transfers",
        "waits of the host for the device in a step, from a profile",
        60,
        disguises=False,
    ),
    _own("two_ranks", "two ranks on two GPUs against one, by rows and by model", 120, devices=2),
    Part(
        "bert_base",
        "one run against Trainer + PEFT, shape of BERT-base",
        f"peers.py --shapes bert_base {_BERT} --out OUT",
        "peers.py --shapes tiny --repeats 1 --methods prefix --jobs few_shot --out OUT",
        240,
    ),
    Part(
        "roberta_large",
        "one run against Trainer + PEFT, shape of RoBERTa-large",
        f"peers.py --shapes roberta_large {_BERT} --keep --out OUT",
        "",
        150,
    ),
    Part(
        "twenty_runs",
        "20 runs that share passes against 20 runs of Trainer + PEFT, BERT-base",
        "sweep_speed.py --shape bert_base --device cuda --precision bf16 --out OUT",
        "",
        300,
    ),
    Part(
        "t5_xxl",
        "prompt tuning of T5-XXL's shape, batches of 16 and 32, in bf16, int8 and nf4",
        _XXL,
        _XXL.replace("--batch 16 32", "--batch 4 --small"),
        180,
    ),
)


def done(part: Part, how: str, out: str) -> dict:
    """Do a part; return its outcome, seconds and figures."""
    began, limit = time.monotonic(), part.limit * LONGER[how]
    process = _started(part.line(how, out), _environment(how, part.devices))
    try:
        output, errors = process.communicate(timeout=limit)
        outcome = "passed" if process.returncode == 0 else "FAILED"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # what it started would share the device
        output, errors = process.communicate()
        outcome = f"STOPPED after {limit} s"
    row = {"part": part.name, "outcome": outcome, "seconds": round(time.monotonic() - began, 1)}
    tail = [] if outcome == "passed" else (output + errors).splitlines()[-_TAIL:]
    return {**row, "figures": _figures(output), "said": tail}


def _started(line: list[str], env: Mapping[str, str]) -> subprocess.Popen:
    """Start a part; the user's PYTHONPATH stays."""
    paths = [str(HERE.parent), *filter(None, [env.get("PYTHONPATH")])]
    return subprocess.Popen(
        line,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**env, "HF_HUB_OFFLINE": "1", "PYTHONPATH": os.pathsep.join(paths)},
        cwd=HERE.parent,
        start_new_session=True,
    )


def _environment(how: str, devices: int) -> dict[str, str]:
    """Return an environment with the first devices of those that are visible."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0,1").split(",")[:devices]
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(visible)}
    if how != DISGUISED:
        return env
    sys.path.insert(0, str(HERE.parent))
    from tests.cuda.session import environment

    return {**environment(env), "PTRUN_TEST_GPUS": str(devices)}


def _figures(output: str) -> dict:
    """Return the JSON object at the end of an output, which may have several lines.

    A part that was stopped may have ended within one.
    """
    lines = output.rstrip().splitlines()
    for start in range(len(lines) - 1, -1, -1):
        if lines[start].startswith("{"):
            try:
                return dict(json.loads("\n".join(lines[start:])))
            except json.JSONDecodeError:
                continue
    return {"printed": lines[-6:]} if lines else {}


_PAGE = """\
# {title}

{day}, `make gpu{typed}`: {passed} of {count} parts passed in {seconds:.0f} s.

| part | shows | outcome | seconds |
|---|---|---|---|
{rows}
"""


def page(rows: list[dict], how: str) -> str:
    """Return the page: a table of outcomes, then the figures of each part."""
    shows = {part.name: part.shows for part in PARTS}
    table = [
        f"| {r['part']} | {shows[r['part']]} | {r['outcome']} | {r['seconds']} |" for r in rows
    ]
    head = _PAGE.format(
        title=TITLES[how],
        day=date.today().isoformat(),
        typed="" if how == FULL else f" ARGS=--{how}",
        passed=sum(row["outcome"] == "passed" for row in rows),
        count=len(rows),
        seconds=sum(row["seconds"] for row in rows),
        rows="\n".join(table),
    )
    return head + "".join(map(_section, rows))


def _section(row: dict) -> str:
    told = [json.dumps(row["figures"], indent=1)] if row["figures"] else []
    return "\n".join([f"\n## {row['part']}\n\n```", *told, *row["said"], "```\n"])


def others(given: argparse.Namespace) -> list[dict]:
    """Return the rows of an earlier call whose parts `--only` does not name."""
    file = _file(given).with_suffix(".json")
    rows = json.loads(file.read_text()) if file.exists() else []
    return [row for row in rows if row["part"] not in given.only]


def _file(given: argparse.Namespace) -> Path:
    """Return the path of the page and of its rows, without suffix."""
    return Path(given.out / ("gpu" if given.how == FULL else f"gpu_{given.how}"))


def write(rows: list[dict], given: argparse.Namespace) -> None:
    """Write both files; after each part, since whoever lent the device may take it back."""
    order = [part.name for part in PARTS]
    rows = sorted(rows, key=lambda row: order.index(row["part"]))
    name = _file(given)
    name.with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n")
    name.with_suffix(".md").write_text(page(rows, given.how))


def main() -> None:
    """Do the parts; exit with 1 if one did not pass."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="a miniature, on a CPU")
    parser.add_argument("--disguised", action="store_true", help="a miniature, on no real GPU")
    parser.add_argument("--only", nargs="+", choices=[part.name for part in PARTS])
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    given.how = DISGUISED if given.disguised else SMALL if given.small else FULL
    wanted = [part for part in PARTS if given.how == FULL or part.small]
    wanted = [part for part in wanted if given.how != DISGUISED or part.disguises]
    rows = others(given) if given.only else []
    with tempfile.TemporaryDirectory() as out:
        for part in wanted:
            if given.only is None or part.name in given.only:
                row = done(part, given.how, out)
                print(f"{part.name}: {row['outcome']}, {row['seconds']} s", flush=True)
                rows.append(row)
                write(rows, given)
    sys.exit(any(row["outcome"] != "passed" for row in rows))


if __name__ == "__main__":
    main()
