"""What a Slurm job does: its runs, as on one machine; USR1 saves them and queues the job again."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ptrun.config.schema import On, SweepConfig
from ptrun.folder import lease
from ptrun.hardware import parent_watch, rank_files
from ptrun.hardware.launcher import environment
from ptrun.hardware.messages import log_to_stderr
from ptrun.hardware.start_ranks import COMMAND
from ptrun.sweeps.job import Job
from ptrun.sweeps.scheduler import Scheduler
from ptrun.sweeps.view import View
from ptrun.training import stopping


@dataclass(frozen=True)
class SlurmTask:
    """The runs of one job; submitit calls it in each process of the job.

    Args:
        titles: the title of each run.
        configurations: each run's configuration as text, as it was when the command was typed.
        folders: the folder of each run.
        options: `sweep.*`.
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
        own = {**os.environ, **rank, parent_watch.PARENT: str(os.getpid())}
        running = subprocess.Popen([*COMMAND, str(file)], env=own, start_new_session=True)
        try:
            running.wait()
        except stopping.Stopped:
            running.send_signal(signal.SIGTERM)
            running.wait()
            raise
        if error := rank_files.read_error(file.parent, int(rank["RANK"])):
            print(f"ptrun: {error.text}", file=sys.stderr, flush=True)
