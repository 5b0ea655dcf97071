"""The scheduler: does what is left of a list of runs, in groups, on all devices.

The states of runs are those of their folders, so the same command goes on where another ended, and
several commands can do one list together. Runs are composed one by one while workers train, and
planned in batches by a worker: this process imports no torch. A run that needs another one, such as
the pre-training of its prompt, is done after it.
"""

import math
import os
import re
import subprocess
import time
from collections import deque
from collections.abc import Hashable, Sequence
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from ptrun.config.schema import On, Retry, Share, SweepConfig
from ptrun.errors import UserError
from ptrun.files import below
from ptrun.folder.lease import Beats
from ptrun.folder.scan import RunState, state_of
from ptrun.hardware.environment import imported
from ptrun.sweeps import queue
from ptrun.sweeps.job import Job
from ptrun.sweeps.view import View
from ptrun.sweeps.workers import COMMAND, Worker, Workers

_BATCH = 64  # runs that are planned at once
_LOOK = 2.0  # seconds between looks at runs of other processes
_BEAT = 0.5  # seconds between updates of the view
LOGS = ".logs"
"""The folder of the logs, below `outputs`."""


class Scheduler:
    """Does runs: `view` shows how far they are, and `command` starts a worker."""

    def __init__(
        self,
        jobs: Sequence[Job],
        options: SweepConfig,
        view: View,
        command: Sequence[str] = COMMAND,
    ):
        self.jobs, self.options, self.view, self.command = [*jobs], options, view, command
        self.unseen = deque(jobs)  # not composed yet
        self.composed: list[Job] = []  # not planned yet
        self.ready: deque[list[Job]] = deque()  # groups
        self.held: list[tuple[Hashable, Job]] = []  # with their shapes, until others are finished
        self.lists = options.dry_run or options.on is On.slurm
        self.waits = options.wait and not self.lists
        self.listed: list[list[Job]] = []  # groups that this process does not do
        self.looked, self.beats, self.places = 0.0, Beats(), 1
        self.record: Path | None = None  # of the runs, for `ptrun status`, until all are finished

    def run(self) -> None:
        """Do what is left; afterwards the jobs say how they ended."""
        imported()
        with TemporaryDirectory(prefix="ptrun-") as folder, self.view:
            self.workers = Workers(Path(folder), self.command)
            try:
                devices = self._slots()
                self.places = len(devices)
                self.workers.devices = [None] if self.lists else devices
                while self._fill() or self._left():
                    self._step()
                self._look()
                if self.record and all(job.stage == "finished" for job in self.jobs):
                    self.record.unlink(missing_ok=True)
            finally:  # workers save their runs if any are left, and end
                if any(worker.request for worker in self.workers.running.values()):
                    self.workers.stop()
                self.workers.close()

    def _slots(self) -> list[str | None]:
        while self.unseen and not self.composed:
            self._compose()
        if not self.composed:
            return [None]
        if self.options.on is On.slurm:
            return slots(self.options.devices, "cpu")
        hardware = self.composed[0].composed.hardware
        if hardware.divides:  # its ranks take all devices
            return [None]
        return slots(self.options.devices, hardware.device)

    def _left(self) -> bool:
        """Return whether runs are left that this process may still do."""
        if self.unseen or self.composed or self.ready or self.held:
            return True
        others = [job.folder for job in self.jobs if job.stage == "elsewhere" and job.folder]
        # it may not be known yet if an owner on another machine lives
        return (self.waits and bool(others)) or any(map(self.beats.unsure, others))

    def _step(self) -> None:
        """Handle an answer, or use the time to compose a run or look at runs of others."""
        answer = self.workers.next(0.0 if self.unseen else _BEAT)
        if answer is not None:
            self._handle(*answer)
        elif self.unseen:
            self._compose()
        if time.monotonic() - self.looked > _LOOK:
            self._look()
        self.view.show(self.jobs)

    def _compose(self) -> None:
        """Compose the next run."""
        job = self.unseen.popleft()
        try:
            _ = job.configuration
        except UserError as error:
            self._ended(job, "refused", str(error))
        else:
            self.composed.append(job)

    def _fill(self) -> bool:
        """Give idle workers groups, or runs to plan; return whether any worker is busy."""
        if self.lists:
            self.listed += self.ready
            self.ready.clear()
        if not (self.ready or self.composed or self.workers.running):
            return False
        for worker in self.workers.idle() if self.ready or self.composed else ():
            if self.ready:
                self._start(worker, self.ready.popleft())
            elif self.composed and (len(self.composed) >= _BATCH or not self.unseen):
                batch, self.composed = self.composed[:_BATCH], self.composed[_BATCH:]
                worker.ask({"plan": _configurations(batch)})
        return any(worker.request for worker in self.workers.running.values())

    def _start(self, worker: Worker, group: list[Job]) -> None:
        outputs = group[0].composed.outputs
        assert group[0].folder is not None
        log = below(outputs, LOGS, f"{group[0].folder.name}.log")
        log.parent.mkdir(parents=True, exist_ok=True)
        for job in group:
            job.stage, job.log, job.started = "running", log, time.time()
        again = [job.index for job in group if job.again]
        worker.ask({"run": _configurations(group), "again": again, "log": str(log)})
        self.view.started(group, worker.slot)

    def _handle(self, worker: Worker, content: list[dict[str, Any]] | None) -> None:
        request, worker.request = worker.request, {}
        jobs = [self.jobs[int(i)] for i in request.get("run", request.get("plan", ()))]
        if content is None:
            self._lost(jobs, worker, request)
        elif "plan" in request:
            self._sort([(self.jobs[facts["index"]], facts) for facts in content])
        else:
            for end in content:
                job = self.jobs[end["index"]]
                if end["kind"] == "busy":
                    job.end("elsewhere", end["text"])
                else:
                    self._ended(job, end["kind"], end["text"])

    def _sort(self, planned: Sequence[tuple[Job, dict[str, Any]]]) -> None:
        """Form groups of the planned runs that are left."""
        left: list[tuple[Any, Job]] = []
        unkept = 0
        for job, facts in planned:
            job.shape, job.most = facts["shape"], facts["most"]
            job.folder, job.needs = Path(facts["folder"]), facts.get("needs", {})
        for job, facts in planned:
            job.after = [self._needed(Path(f), text) for f, text in facts.get("after", {}).items()]
            if facts["refused"] is not None:
                self._ended(job, "refused", facts["refused"])
                continue
            assert job.folder is not None
            state = state_of(job.folder)
            if self._is_left(job, state):
                unkept = max(unkept, facts.get("unkept", 0))
                shared = job.shape is not None and self.options.share is Share.auto
                # runs of an interrupted group stay together
                shape = (job.shape, state.group) if shared else None
                (self.held if job.after and not self.lists else left).append((shape, job))
        self.view.unkept(unkept)
        folders = [job.folder for job in self.jobs if job.folder and job.stage != "refused"]
        if folders and not self.lists:
            typed = repr([job.overrides for job in self.jobs if job.overrides])
            name = f"{sha256(typed.encode()).hexdigest()[:16]}.sweep"
            self.record = queue.record(planned[0][0].composed.outputs, {"": folders}, name)
        self._group(left)
        self._release()

    def _needed(self, folder: Path, text: str) -> Job:
        """Return the run of a folder, which another run needs; a new one is planned next."""
        job = next((job for job in self.jobs if job.folder == folder), None)
        if job is None:
            job = Job.of_configuration(len(self.jobs), "needed by others", text)
            job.folder = folder
            self.jobs.append(job)
            self.composed.append(job)
            self.view.total = len(self.jobs)
        return job

    def _group(self, left: Sequence[tuple[Any, Job]]) -> None:
        """Form groups of runs by their shapes."""
        most = min((job.most for shape, job in left if shape is not None), default=1)
        interrupted = [(shape, job) for shape, job in left if shape and shape[1]]
        new = [(shape, job) for shape, job in left if not (shape and shape[1])]
        self.ready.extend(groups(interrupted, most, workers=1))
        self.ready.extend(groups(new, most, self.places))

    def _release(self) -> None:
        """Group the held runs whose needs are finished; refuse those whose needs will not be."""
        held, self.held, free = self.held, [], []
        for shape, job in held:
            if job.stage != "waiting":
                continue
            unmet = next((n for n in job.after if n.stage in ("failed", "refused", "left")), None)
            if unmet is not None and unmet.folder is not None:
                text = f"needs {unmet.folder.name}, which is {unmet.stage}: {unmet.text}"
                self._ended(job, "refused", text)
            elif all(needed.stage == "finished" for needed in job.after):
                free.append((shape, job))
            else:
                self.held.append((shape, job))
        self._group(free)

    def _is_left(self, job: Job, state: RunState) -> bool:
        """Return whether a run in this state is to be done; else note how it ended."""
        if state.kind == "running":
            job.end("elsewhere", state.detail)
        elif state.kind == "finished" and not job.composed.rerun:
            self._ended(job, "finished")
        elif state.kind == "failed" and not job.composed.rerun:
            job.again = self.options.retry is Retry.failed
            if not job.again:
                self._ended(job, "failed", f"{state.detail} (sweep.retry=failed tries again)")
        elif state.kind == "damaged" and not job.composed.rerun:
            self._ended(job, "refused", state.detail)
        return job.stage == "waiting"

    def _lost(self, jobs: Sequence[Job], worker: Worker, request: dict[str, Any]) -> None:
        """Repeat what a worker that died was asked for; the second time do runs one by one.

        One that was alone has then failed, and so have those that were being planned.
        """
        jobs = [job for job in jobs if job.stage != "left"]
        code = worker.process.returncode
        for job in jobs:
            job.lost += 1
        newly_lost = any(job.lost == 1 for job in jobs)
        if newly_lost or ("run" in request and len(jobs) > 1):
            for job in jobs:
                job.stage = "waiting"
            if "plan" in request:
                self.composed[:0] = jobs
            else:
                self.ready.extendleft([jobs] if newly_lost else [[job] for job in reversed(jobs)])
            return
        for job in jobs:
            file = job.log or worker.errors
            last = file.read_text("utf-8", "replace").strip().splitlines()[-1:] or ["no message"]
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            self._ended(job, "failed", f"its process ended with {how}: {last[0]}")

    def _look(self) -> None:
        """Look at the runs of other processes: finished, or, if this one waits, left for it."""
        self.looked = time.monotonic()
        for job in self.jobs:
            if job.stage != "elsewhere":
                continue
            assert job.folder is not None
            state = state_of(job.folder)
            silent = state.kind == "running" and self.beats.silent(job.folder)
            if silent:
                state = RunState("interrupted")
            waits = self.waits or any(job in other.after for _, other in self.held)
            if state.kind == "finished" or silent or (waits and state.kind != "running"):
                job.stage = "waiting"
                if self._is_left(job, state):
                    self.ready.append([job])

    def _ended(self, job: Job, stage: Any, text: str = "") -> None:
        job.end(stage, text)
        self.view.finish(job)
        self._release()
        if not (stage in ("failed", "refused") and self.options.fail_fast):
            return
        for other in self.jobs:  # nothing more starts, and running workers save
            if other.stage == "waiting":
                other.end("left")
        for left in (self.unseen, self.composed, self.ready, self.held):
            left.clear()
        self.workers.stop()
        for other in self.jobs:
            if other.stage == "running":
                other.end("left", "saved")


def _configurations(jobs: Sequence[Job]) -> dict[int, str]:
    return {job.index: job.configuration for job in jobs}


# The devices that the groups of a sweep get: each GPU, or shares of the cores.

_DEVICES = Path("/dev")


def slots(requested: Any, device: str) -> list[str | None]:
    """Return what each group of runs sees at a time: a GPU's id, or None for a share of the cores.

    `requested` is `sweep.devices`; the device is `cpu` or `cuda`.
    """
    if requested != "auto" and not (type(requested) is int and requested > 0):
        raise UserError(f"sweep.devices={requested}: use auto, or a number of groups at a time.")
    if device != "cuda":
        return [None] * (1 if requested == "auto" else requested)
    gpus = _gpus()
    if requested != "auto" and requested > len(gpus):
        raise UserError(f"sweep.devices={requested}: {len(gpus)} GPUs are visible; use auto.")
    return [*gpus[: None if requested == "auto" else requested]] or [None]


def _gpus() -> list[str]:
    """Return the ids of the visible GPUs, or of their slices (MIG), without importing torch."""
    visible, present = os.environ.get("CUDA_VISIBLE_DEVICES"), _present()
    if visible is None:
        return present
    count = len(present) if present and present[0].isdigit() else math.inf

    def is_there(device: str) -> bool:
        return int(device) < count if device.isdigit() else device.startswith(("GPU-", "MIG-"))

    # CUDA ignores the first device that is not there, and all after it
    return [*dict.fromkeys(takewhile(is_there, map(str.strip, visible.split(","))))]


def _present() -> list[str]:
    """Return the ids of this machine's GPUs; of divided ones those of their slices."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):  # some containers have the devices alone
        return [str(n) for n, _ in enumerate(_DEVICES.glob("nvidia[0-9]*"))]
    gpus = [line for line in listed.stdout.splitlines() if line.startswith("GPU ")]
    slices = re.findall(r"UUID: (MIG-[^)]+)", listed.stdout)
    return slices or [str(n) for n, _ in enumerate(gpus)]


# Groups of runs that share the passes of one frozen backbone.

T = TypeVar("T")


def groups(items: Sequence[tuple[Hashable | None, T]], most: int, workers: int) -> list[list[T]]:
    """Return items in groups of equal shapes, at most `most` each, in order of their first items.

    With fewer shapes than workers, groups are smaller, so that each worker has one. An item whose
    shape is None is a group of its own.
    """
    size = max(1, min(most, -(-len(items) // workers)))
    latest: dict[Hashable, list[T]] = {}
    every: list[list[T]] = []
    for shape, item in items:
        group = latest.get(shape, []) if shape is not None else []
        if not group or len(group) == size:
            group = latest[shape] = []
            every.append(group)
        group.append(item)
    return every
