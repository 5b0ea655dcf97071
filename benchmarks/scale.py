"""Do a table of 216 small runs with kills: wall time, processor time, idle workers, runs lost.

    python benchmarks/scale.py [--slurm] [--kills 3] [--seeds 8] [--devices 2]
        [--set KEY=VALUE ...]

P-tuning v2's Table 2 at pocket scale (two steps a run). Local workers: the command is killed with
all its processes some seconds after it started, as often as --kills says, and typed again. --slurm
does the runs through Slurm (SLURM_CONF), where jobs are cancelled instead. A run is lost if no
result of it is there at the end. Adds to results/scale.json.
"""

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

from running import PTRUN, arguments, keep, kept

TABLE = ["experiment=ptuning_v2/table2", "+scale=pocket"]


def used() -> float:
    """Return the processor seconds of all children that ended."""
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime


def killed(line: list[str], after: float) -> bool:
    """Start a command, kill it with its processes after some seconds; return whether it ended."""
    process = subprocess.Popen(
        line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        process.wait(timeout=after)
        return True
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return False


def cancelled(line: list[str], after: float) -> bool:
    """Start a command, and cancel its running jobs after some seconds; return whether it ended."""
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        process.wait(timeout=after)
        return True
    except subprocess.TimeoutExpired:
        subprocess.run(["scancel", "--state=RUNNING", "--me"], check=False)
        process.wait()
        return False


def main() -> None:
    """Measure, and add to the result."""
    parser = arguments(__doc__)
    parser.add_argument("--slurm", action="store_true")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--set", nargs="+", default=[], help="options of the table, as cell=NAME")
    given = parser.parse_args()
    os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as temporary:
        outputs = Path(temporary) / "outputs"
        seeds = ",".join(map(str, range(1, given.seeds + 1)))
        line = [*PTRUN, *TABLE, f"seed={seeds}", f"outputs={outputs}", *given.set]
        line += ["sweep.on=slurm", "sweep.wait=true", "cluster.cpus=1"] if given.slurm else []
        line += [f"sweep.devices={given.devices}"]
        began, kills, stop = time.monotonic(), 0, cancelled if given.slurm else killed
        while kills < given.kills and not stop(line, 30 + 15 * kills):
            kills += 1
        last = subprocess.run(line, capture_output=True, text=True)
        seconds = time.monotonic() - began
        done = [json.loads(file.read_text()) for file in outputs.rglob("result.json")]
        failed = list(outputs.rglob("failure.json"))
        wanted = subprocess.run([*line, "sweep.dry_run=true"], capture_output=True, text=True)
    counted = not (given.slurm or kills)  # the processes of jobs, and killed ones, are no children
    training = sum(own["manifest"]["seconds"] for own in done)
    found = {
        "date": date.today().isoformat(),
        "threads": os.cpu_count(),
        "runs": len(done),
        "failed": len(failed),
        "kills": kills,
        "exit code": last.returncode,
        "wall s": round(seconds),
        "processor s": round(used()) if counted else None,
        "idle share of workers": (
            round(1 - used() / (seconds * given.devices), 2) if counted else None
        ),
        "s in runs": round(training),
        "said at the end": wanted.stdout.strip().splitlines()[-1:],
    }
    print(json.dumps(found, indent=1))
    every = kept(given.out / "scale.json", {})
    every["slurm" if given.slurm else "local with kills" if kills else "local"] = found
    keep(given.out / "scale.json", every)
    sys.exit(last.returncode)


if __name__ == "__main__":
    main()
