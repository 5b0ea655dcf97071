"""`sweep.on=slurm`: groups of the runs that are left become the tasks of a job array.

This process imports no torch and needs no device; a helper plans the runs. Each task does its runs
as one machine would (`SlurmTask`), so the folders say what is left whatever becomes of a job.
"""

import errno
import math
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ptrun.config.identity import flat
from ptrun.config.schema import ClusterConfig, On, SweepConfig
from ptrun.errors import UserError, visible, warn_once
from ptrun.files import below
from ptrun.folder import lease
from ptrun.folder.scan import state_of
from ptrun.hardware import processes
from ptrun.hardware.environment import environment, log_to_stderr
from ptrun.hardware.start_ranks import COMMAND
from ptrun.sweeps import queue
from ptrun.sweeps.job import Job
from ptrun.sweeps.scheduler import Scheduler
from ptrun.sweeps.view import View
from ptrun.sweeps.workers import PLANNER
from ptrun.training import stopping
from ptrun.training.stopping import Stopped

# What a Slurm job does: its runs, as on one machine; USR1 saves them and queues the job again.


@dataclass(frozen=True)
class SlurmTask:
    """The runs of one job; submitit calls it in each process of the job.

    Configurations are text, as they were when the command was typed.
    """

    titles: Sequence[str]
    configurations: Sequence[str]
    folders: Sequence[Path]
    options: SweepConfig

    def __call__(self) -> None:
        """Do the runs. After USR1 submitit queues the job again, once they are saved."""
        requeue: Any = signal.getsignal(signal.SIGUSR1)
        stopping.install()
        log_to_stderr()
        try:
            rank = environment(os.environ)
            self._do() if rank is None else self._do_as_rank(rank)
        except stopping.Stopped as stopped:
            print(stopped, file=sys.stderr, flush=True)
            if stopped.number != signal.SIGUSR1:
                sys.exit(128 + stopped.number)
            requeue(stopped.number, None)  # the first process exits; srun must not see others fail

    def checkpoint(self) -> Any:
        """Return what submitit starts when the job comes on again: the same."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)

    def _do(self) -> None:
        jobs = [
            Job.of_configuration(n, title, text)
            for n, (title, text) in enumerate(zip(self.titles, self.configurations, strict=True))
        ]
        options = replace(self.options, on=On.local, devices="auto", wait=False)
        Scheduler(jobs, options, View(len(jobs))).run()

    def _do_as_rank(self, rank: Mapping[str, str]) -> None:
        """Do the runs one after another, as one rank of each."""
        for text, folder in zip(self.configurations, self.folders, strict=True):
            try:
                with nullcontext() if int(rank["RANK"]) else lease.held(folder):
                    _start(text, rank)
            except lease.Busy as busy:
                sys.exit(f"ptrun: {busy}")  # srun then ends the other processes, too


def _start(configuration: str, rank: Mapping[str, str]) -> None:
    """Do a run as one rank in a process of its own; a signal lets that save at its next step."""
    with TemporaryDirectory(prefix="ptrun-") as name:
        file = Path(name, "run.yaml")
        file.write_text(configuration, encoding="utf-8")
        env = {**os.environ, **rank, processes.PARENT: str(os.getpid())}
        running = subprocess.Popen([*COMMAND, str(file)], env=env, start_new_session=True)
        try:
            running.wait()
        except stopping.Stopped:
            running.send_signal(signal.SIGTERM)
            running.wait()
            raise
        if error := processes.read_error(file.parent, int(rank["RANK"])):
            print(f"ptrun: {error.text}", file=sys.stderr, flush=True)


_PYTHON = f"{shlex.quote(sys.executable)} -P"  # nothing is imported from the current folder
_TURNS = 1000  # how often a job may come on again after its time
_MARGIN, _START = 1.5, 10.0  # of the computed time; minutes to start
_CORES = 4  # of a process, where a node has as many
_LOOK = 5.0  # seconds between looks at the queue
_SIGNAL = "USR1"
Group = Sequence[Job]


class Slurm:
    """Submits runs, and waits for them if asked."""

    def __init__(self, jobs: Sequence[Job], options: SweepConfig):
        self.jobs, self.options = jobs, options
        self.tasks: dict[str, Group] = {}
        self.beats = lease.Beats()

    def run(self) -> bool:
        """Submit what is left; return whether all is finished or submitted."""
        scheduler = Scheduler(self.jobs, self.options, View(len(self.jobs)), PLANNER)
        scheduler.run()
        planned = [job for job in self.jobs if job.folder is not None]
        if planned:
            self.outputs = planned[0].composed.outputs
            self._submit(scheduler.listed)
        if self.options.wait:
            self._wait()
        return all(job.stage in ("finished", "elsewhere") for job in self.jobs)

    def _submit(self, groups: Sequence[Group]) -> None:
        """Submit groups: one array for those that need the same processes and devices."""
        listed = queue.queued(self.outputs) if groups else {}
        groups = [*filter(None, (_not_queued(group, listed) for group in groups))]
        alike: dict[tuple[Any, Any], list[Group]] = {}
        for group in groups:
            alike.setdefault((group[0].needs["ranks"], group[0].needs["device"]), []).append(group)
        for array in alike.values():
            self._submit_array(array)

    def _submit_array(self, groups: Sequence[Group]) -> None:
        cluster = groups[0][0].composed.cluster
        _check_links(self._logs())
        executor = _executor(self._logs() / "%j", parameters(cluster, groups))
        slurm_tasks = [
            SlurmTask(
                [job.title for job in group],
                [job.configuration for job in group],
                [_folder(job) for job in group],
                self.options,
            )
            for group in groups
        ]
        from submitit.core.utils import FailedJobError

        try:
            with executor.batch():
                submitted = [executor.submit(task) for task in slurm_tasks]
        except FailedJobError as error:
            told = " ".join(str(error).split())
            raise UserError(
                f"Slurm rejects the job: {told}. See conf/cluster/default.yaml."
            ) from error
        ids = [str(job.job_id) for job in submitted]
        tasks = dict(zip(ids, groups, strict=True))
        self.tasks |= tasks
        folders = {task: [_folder(job) for job in group] for task, group in tasks.items()}
        queue.record(self.outputs, folders)
        for task, group in tasks.items():
            for job in group:
                job.end("elsewhere", f"in job {task}")
        runs, plural = sum(map(len, groups)), "s" * (len(groups) > 1)
        number = ids[0].split("_")[0]
        print(
            f"submitted {runs} runs in {len(groups)} group{plural} as Slurm job {number}; to see "
            f"how far they are, type: ptrun status {self.outputs}",
            file=sys.stderr,
        )

    def _wait(self) -> None:
        """Stay until all runs have ended; a run that its job left is submitted again, once."""
        with View(len(self.jobs)) as view:
            try:
                while any(job.stage == "elsewhere" for job in self.jobs):
                    self._look(view)
                    view.show(self.jobs)
                    time.sleep(_LOOK)
            except (Stopped, KeyboardInterrupt):
                if self.tasks and sys.stdin.isatty():
                    asked = f"Cancel {len(self.tasks)} jobs? Their runs are saved. [y/N] "
                    if input(asked).lower() == "y":
                        queue.cancel(list(self.tasks))
                raise

    def _look(self, view: View) -> None:
        try:
            listed = queue.queued(self.outputs)  # before the folders: a job may end in between
        except UserError:
            return  # the next look may have an answer
        left: list[Job] = []
        for job in self.jobs:
            if job.stage != "elsewhere":
                continue
            state = state_of(_folder(job))
            task = listed.get(_folder(job).absolute(), "")
            if "; type " in task:
                warn_once(task.partition(", ")[2])
            # the failure of a run that is in the queue may be one that is tried again
            if state.kind == "finished" or (state.kind == "failed" and not task):
                job.end(state.kind, state.detail)
                view.finish(job)
            elif not task and (state.kind != "running" or self.beats.silent(_folder(job))):
                left.append(job)
        for job in left:
            job.lost += 1
            job.stage = "waiting"
            if job.lost > 1:
                job.end("failed", f"its Slurm jobs ended without a result; see {self._logs()}")
                view.finish(job)
        self._submit([[job] for job in left if job.stage == "waiting"])

    def _logs(self) -> Path:
        return below(self.outputs, queue.FOLDER)


def _not_queued(group: Group, listed: Mapping[Path, str]) -> Group:
    """Return the runs of a group that no job in the queue will do."""
    for job in group:
        if job.composed.rerun:
            raise UserError(
                "rerun=true: a job that comes on again would start anew each time. Type "
                "name=NAME for new runs, or leave out sweep.on=slurm."
            )
        if task := listed.get(_folder(job).absolute()):
            job.end("elsewhere", f"in {task}")
    return [job for job in group if job.stage != "elsewhere"]


def parameters(cluster: ClusterConfig, groups: Sequence[Group]) -> dict[str, Any]:
    """Return the parameters of submitit for an array of groups, each like the largest."""
    first = groups[0][0].needs
    ranks, gpu = first["ranks"], first["device"] == "cuda"
    nodes = cluster.nodes if ranks > 1 else 1
    if ranks % nodes:
        raise UserError(f"cluster.nodes={nodes}: a run has {ranks} processes; use a divisor of it.")
    on_node = ranks // nodes
    # a line break would begin another line of the job's script
    for key, text in flat({**vars(cluster), "setup": None}).items():
        if f"{key}{text}" != visible(f"{key}{text}"):
            raise UserError(
                f"cluster.{visible(key)}={visible(str(text))} has a control character. Leave it "
                "out; lines of the job's script stand in cluster.setup."
            )
    most = queue.cores(cluster.partition) if cluster.cpus is None else None  # of a node
    cores = _CORES if most is None else max(1, min(_CORES, most // on_node))
    needs = [(len(group), group[0].needs) for group in groups]
    gib = max(float(need["gib"] + (count - 1) * need["each"]) for count, need in needs)
    times = [[job.needs["seconds"] for job in group] for group in groups]
    minutes = cluster.max_time
    if all(seconds is not None for group in times for seconds in group):
        minutes = min(minutes, math.ceil(_START + _MARGIN * max(map(sum, times)) / 60))
    typed = {key: getattr(cluster, key) for key in ("partition", "account", "qos", "constraint")}
    return {
        **{key: value for key, value in typed.items() if value is not None},
        "job_name": "ptrun",
        "time": cluster.time or minutes,
        "mem": f"{math.ceil(1024 * (cluster.memory or gib * on_node))}MB",
        "nodes": nodes,
        **({"srun_args": ["--kill-on-bad-exit=1"]} if ranks > 1 else {}),
        "ntasks_per_node": on_node,
        "cpus_per_task": cluster.cpus or cores,
        **({"gpus_per_node": on_node} if gpu else {}),
        "signal_delay_s": cluster.warn,
        "array_parallelism": cluster.jobs,
        "setup": [f"export SUBMITIT_PREEMPT_SIGNAL={_SIGNAL}", *cluster.setup],
        "additional_parameters": {"requeue": True, **cluster.sbatch},
    }


def _folder(job: Job) -> Path:
    assert job.folder is not None
    return job.folder


def _check_links(logs: Path) -> None:
    """Refuse links out of the folder of jobs: submitit writes into a folder named after the job.

    It leaves a link to the script of each submission itself.
    """
    for entry in logs.iterdir() if logs.is_dir() else ():
        if entry.is_symlink() and not entry.resolve().is_relative_to(logs.resolve()):
            raise OSError(errno.EXDEV, "a link among the folders of jobs", str(entry))


def _executor(folder: Path, options: dict[str, Any]) -> Any:
    """Return submitit's executor."""
    os.environ["SUBMITIT_PREEMPT_SIGNAL"] = _SIGNAL
    try:
        from submitit import SlurmExecutor
    except ImportError as error:
        raise UserError(
            "sweep.on=slurm needs submitit. Type: pip install 'ptrun[slurm]'"
        ) from error
    try:
        executor = SlurmExecutor(folder, max_num_timeout=_TURNS, python=_PYTHON)
    except RuntimeError as error:
        raise UserError(
            "sweep.on=slurm: there is no srun here. Type it on a login node of the cluster."
        ) from error
    executor.update_parameters(**options)
    return executor
