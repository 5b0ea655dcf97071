"""Accept a GPU in 20 minutes: numerics, equality with the CPU, speed, memory, resuming.

    make gpu                                 on a CUDA device, with torch and no network
    make gpu ARGS="--only speed"             one part
    make gpu ARGS=--small                    the same parts on a CPU, in miniature
    make gpu ARGS=--disguised                in miniature on a CUDA device that is not there

Each part is a process with a time limit of its own; one that fails does not stop the others. The
last line that a part prints is a JSON object of figures. Writes results/gpu.{json,md} after each
part, and the tables of README, CONTRIBUTING and docs; a miniature writes results/gpu_small.{json,
md}, one on the disguised device (tests/cuda) results/gpu_disguised.

For a GPU that is lent, at most nine minutes: the speed of an older commit, whose tree is a folder
of that name, then of this one, then what else there is time for.

    git archive --prefix=COMMIT/ COMMIT | tar -x -C DIR
    make gpu ARGS="--session DIR/COMMIT"

With `--out FOLDER` the files are there: copy gpu.json into it before to add to it, and back
afterwards, and write the pages with `python benchmarks/gpu_page.py`.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from gpu_page import DISGUISED, FULL, SMALL, page, rule, write_tables

HERE = Path(__file__).parent
RESULTS = HERE / "results"
_TAIL = 12  # lines of a failed part on the page
LONGER = {FULL: 1, SMALL: 3, DISGUISED: 10}
"""How many times its limit a part may take: a CPU may be busy, and a disguise is slow."""
SESSION = (
    *("environment", "speed_before", "speed", "numerics", "equality", "together", "resume"),
    *("kernel", "speed_more"),
)
"""The parts for a GPU that is lent, and their seconds in all."""
SESSION_SECONDS = 540


@dataclass(frozen=True)
class Part:
    """A part: what it shows, its command on a GPU and in miniature, and its limit in seconds.

    `moves` says whether the miniature takes `--device`, `disguises` whether it works on a device
    that is not there. A part sees `devices` devices. One that is `extra` is done only by name.
    """

    name: str
    shows: str
    command: str
    small: str
    limit: int
    moves: bool = True
    disguises: bool = True
    devices: int = 1
    extra: bool = False

    def line(self, how: str) -> list[str]:
        """Return its command line."""
        device = ["--device", "cuda"] if how == DISGUISED and self.moves else []
        file, *rest = (self.command if how == FULL else self.small).split()
        return [sys.executable, str(HERE / file), *rest, *device]


def _own(name: str, shows: str, limit: int, **more: Any) -> Part:
    return Part(name, shows, f"gpu_parts.py {name}", f"gpu_parts.py {name} --small", limit, **more)


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
        "speed",
        "steady steps beside Trainer + PEFT with its best flags, tokens/s, launches, memory",
        "speed.py",
        "speed.py --small --seconds 400 --only 5 7 9",
        190,
    ),
    Part(
        "speed_before",
        "the same of an older commit, without the peer",
        "speed.py --alone",
        "speed.py --alone --small --seconds 400 --only 0",
        190,
        extra=True,
    ),
    Part(
        "speed_more",
        "the same at the shapes of Llama-3.2-1B and T5-XXL",
        "speed.py --more --seconds 200",
        "speed.py --more --small --seconds 400",
        240,
        extra=True,
    ),
)


def done(part: Part, given: argparse.Namespace, left: float) -> dict:
    """Do a part within the seconds that are left; return its outcome, figures and commit."""
    began, limit = time.monotonic(), min(part.limit * LONGER[given.how], left)
    tree = given.session if part.name == "speed_before" else HERE.parent
    process = _started(part.line(given.how), _environment(given.how, part.devices), tree)
    try:
        output, errors = process.communicate(timeout=limit)
        outcome = "passed" if process.returncode == 0 else "FAILED"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # what it started would share the device
        output, errors = process.communicate()
        outcome = f"STOPPED after {limit:.0f} s"
    row = {"part": part.name, "shows": part.shows, "outcome": outcome}
    row |= {"seconds": round(time.monotonic() - began, 1), "date": date.today().isoformat()}
    row["card"] = "CPU" if given.how == SMALL else card()
    name = given.commit if tree == HERE.parent and given.commit else commit(tree)
    row |= {"commit": name, "masks": rule(tree)}
    tail = [] if outcome == "passed" else (output + errors).splitlines()[-_TAIL:]
    return {**row, "figures": _figures(output), "said": tail}


def card() -> str:
    """Return the name of the first device."""
    line = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    if not shutil.which(line[0]):
        return "GPU"
    names = subprocess.run(line, capture_output=True, text=True, check=False).stdout.splitlines()
    return names[0] if names else "GPU"


def commit(tree: Path) -> str:
    """Return the commit of a tree: git's, or the name of a folder from `git archive`."""
    line = ["git", "-C", str(tree), "rev-parse", "--short=8", "HEAD"]
    if not (tree / ".git").exists():
        return tree.resolve().name
    return subprocess.run(line, capture_output=True, text=True, check=False).stdout.strip()


def _started(line: list[str], env: Mapping[str, str], tree: Path) -> subprocess.Popen:
    """Start a part with the package of a tree; the user's PYTHONPATH stays."""
    paths = [str(tree.resolve()), *filter(None, [env.get("PYTHONPATH")])]
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


def _file(given: argparse.Namespace) -> Path:
    """Return the path of the page and of its rows, without suffix."""
    return Path(given.out / ("gpu" if given.how == FULL else f"gpu_{given.how}"))


def write(rows: Iterable[dict], given: argparse.Namespace) -> None:
    """Write both files; after each part, since whoever lent the device may take it back."""
    order = [part.name for part in PARTS]
    rows = sorted(rows, key=lambda row: [*order, row["part"]].index(row["part"]))
    name = _file(given)
    name.with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n")
    name.with_suffix(".md").write_text(page(rows, given.how))
    if name == RESULTS / "gpu":
        write_tables()


def chosen(given: argparse.Namespace) -> list[Part]:
    """Return the parts to do, in order."""
    named = SESSION if given.session else given.only
    parts = {part.name: part for part in PARTS if named or not part.extra}
    wanted = [parts[name] for name in named or parts]
    if given.how == DISGUISED:
        wanted = [part for part in wanted if part.disguises]
    return wanted


def main() -> None:
    """Do the parts; exit with 1 if one did not pass."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="a miniature, on a CPU")
    parser.add_argument("--disguised", action="store_true", help="a miniature, on no real GPU")
    parser.add_argument(
        "--only", nargs="+", choices=[p.name for p in PARTS if p.name != "speed_before"]
    )
    parser.add_argument("--session", type=Path, metavar="DIR/COMMIT", help="a GPU that is lent")
    parser.add_argument("--commit", help="that of this tree, where git is not")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    given.how = DISGUISED if given.disguised else SMALL if given.small else FULL
    seconds = SESSION_SECONDS * LONGER[given.how] if given.session else float("inf")
    wanted, deadline = chosen(given), time.monotonic() + seconds
    file, failed = _file(given).with_suffix(".json"), False
    known = json.loads(file.read_text()) if file.exists() and (given.only or given.session) else []
    rows = {row["part"]: row for row in known}
    given.out.mkdir(parents=True, exist_ok=True)
    for part in wanted:
        left = deadline - time.monotonic()
        if left < 1:
            print(f"{part.name}: no time is left", flush=True)
            continue
        rows[part.name] = row = done(part, given, left)
        failed |= row["outcome"] != "passed"
        print(f"{part.name}: {row['outcome']}, {row['seconds']} s", flush=True)
        write(rows.values(), given)
    sys.exit(failed)


if __name__ == "__main__":
    main()
