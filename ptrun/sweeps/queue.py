"""The queue of a Slurm cluster, and the runs of its jobs, recorded below `outputs`."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from ptrun.errors import UserError
from ptrun.files import below, read_json, write_text
from ptrun.folder import digest

_STUCK = (
    *("PartitionConfig", "BadConstraints", "PartitionTimeLimit", "PartitionDown"),
    *("InvalidAccount", "InvalidQOS"),
)
FOLDER = ".jobs"
"""The folder of jobs below `outputs`: records, logs, and the files of submitit."""


def record(outputs: Path, tasks: Mapping[str, Sequence[Path]], name: str = "") -> Path:
    """Write which runs the tasks of a job do, and return the file.

    A task is `JOB` or `JOB_INDEX`; a sweep of this machine has one task "" and a `name`.
    """
    file = below(outputs, FOLDER, name or f"{next(iter(tasks)).split('_')[0]}.json")
    plain = {task: [os.path.abspath(f) for f in folders] for task, folders in tasks.items()}
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, json.dumps(digest.sealed(plain)))
    return file


def of_sweeps(outputs: Path) -> list[Path]:
    """Return the runs of sweeps that have not done all of them."""
    files = sorted((outputs / FOLDER).glob("*.sweep"))
    return [folder for file in files for folders in _recorded(file).values() for folder in folders]


def queued(outputs: Path) -> dict[Path, str]:
    """Return the runs of jobs in the queue: by folder, the task and its state."""
    files = sorted((outputs / FOLDER).glob("*.json"))
    states = _states() if files else {}
    tasks_of: dict[Path, str] = {}
    for file in files:
        for task, folders in _recorded(file).items():
            if task in states:
                tasks_of |= {folder: f"job {task}, {states[task]}" for folder in folders}
    return tasks_of


def _recorded(file: Path) -> dict[str, list[Path]]:
    """Return the runs of the tasks of a job."""
    try:
        tasks = digest.unsealed(read_json(file))
        return {str(task): [Path(folder) for folder in folders] for task, folders in tasks.items()}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise UserError(f"{file}: damaged. Delete it; the same command writes it again.") from error


def cancel(tasks: Sequence[str]) -> None:
    """Cancel tasks; their runs save at the next step."""
    subprocess.run(["scancel", *tasks], check=False, capture_output=True)


def _states() -> dict[str, str]:
    """Return the tasks in the queue; none where there is no Slurm."""
    line = ["squeue", "--noheader", "--array", "--format=%i %T %r"]
    try:
        listed = subprocess.run(line, capture_output=True, text=True, timeout=60, check=True)
    except FileNotFoundError:
        return {}
    except (OSError, subprocess.SubprocessError) as error:
        told = str(getattr(error, "stderr", None) or error).strip().splitlines()[-1:]
        raise UserError(f"squeue does not answer: {' '.join(told)}. Try again.") from error
    states = {}
    for row in listed.stdout.splitlines():
        task, state, reason = (*row.split(maxsplit=2), "", "", "")[:3]
        states[task] = state.lower()
        if state == "PENDING" and reason not in ("", "None"):
            advice = "; type cluster.KEY=VALUE" if reason.startswith(_STUCK) else ""
            states[task] = f"pending: {reason}{advice}"
    return states


def cores(partition: str | None) -> int | None:
    """Return the most cores that a node of a partition has; None where Slurm does not say."""
    line = ["sinfo", "--noheader", "--format=%c", *(["-p", partition] if partition else [])]
    try:
        listed = subprocess.run(line, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    counts = [line.strip().rstrip("+") for line in listed.stdout.splitlines()]
    return max((int(count) for count in counts if count.isdigit()), default=None)
