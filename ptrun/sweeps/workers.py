"""The processes of a sweep: one for each device, each with its share of the cores."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from ptrun.hardware import processes
from ptrun.hardware.environment import cores

COMMAND = (sys.executable, "-P", "-m", "ptrun.runs.worker")
"""`-P` keeps the current folder out of the import path, as in the launcher."""
PLANNER = (sys.executable, "-P", "-m", "ptrun.planning.planner")
"""Plans runs for other machines."""
_KILL_AFTER = 5.0  # seconds that idle workers have to end


Answers = SimpleQueue[tuple[int, list[dict[str, Any]] | None]]
"""The slots of workers with their answers; None if the process has ended."""


class Worker:
    """A process, on the device of a slot, that answers one request at a time.

    `errors` is the file of what it prints before its first run.
    """

    def __init__(
        self,
        slot: int,
        environment: Mapping[str, str],
        answers: Answers,
        errors: Path,
        command: Sequence[str],
    ):
        self.slot, self.errors, self.request = slot, errors, dict[str, Any]()
        with errors.open("wb") as opened:
            self.process = subprocess.Popen(
                command, env=dict(environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=opened, start_new_session=True, text=True,
            )  # fmt: skip
        self.reader = threading.Thread(target=self._read, args=[answers], daemon=True)
        self.reader.start()

    def _read(self, answers: Answers) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                answers.put((self.slot, json.loads(line)))
        self.process.wait()
        answers.put((self.slot, None))

    def ask(self, request: dict[str, Any]) -> None:
        """Send a request; a process that has ended answers with its end."""
        assert self.process.stdin is not None
        self.request = request
        with suppress(BrokenPipeError):
            print(json.dumps(request), file=self.process.stdin, flush=True)

    def signal(self, number: int) -> None:
        """Send a signal to the process alone; it ends what it has started."""
        with suppress(ProcessLookupError):
            self.process.send_signal(number)

    def close(self) -> None:
        """Let the process end after its last answer."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()

    def kill(self) -> None:
        """Kill the process if it still runs, and forget it."""
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
        self.reader.join()
        self.close()


class Workers:
    """The workers of a sweep.

    `devices` is what each slot sees: the id of a GPU, or None for a share of the cores. The first
    messages of workers go to `folder`.
    """

    def __init__(self, folder: Path, command: Sequence[str] = COMMAND):
        self.folder, self.command = folder, command
        self.devices: Sequence[str | None] = [None]
        self.answers: Answers = SimpleQueue()
        self.running: dict[int, Worker] = {}

    def idle(self) -> list[Worker]:
        """Return a worker for each slot without a request; those that are missing start."""
        for slot in range(len(self.devices)):
            if slot not in self.running:
                errors, env = self.folder / f"worker{slot}.err", self._environment(slot)
                self.running[slot] = Worker(slot, env, self.answers, errors, self.command)
        return [worker for worker in self.running.values() if not worker.request]

    def next(self, timeout: float) -> tuple[Worker, list[dict[str, Any]] | None] | None:
        """Return the next answer with its worker, which is idle again or gone."""
        with suppress(Empty):
            answers = self.answers
            slot, content = answers.get(timeout=timeout) if timeout else answers.get_nowait()
            worker = self.running[slot]
            if content is None:
                self.running.pop(slot).kill()
            return worker, content
        return None

    def stop(self) -> None:
        """Let every worker save at its next step and end; a second signal kills them."""
        for worker in self.running.values():
            worker.signal(signal.SIGTERM)
        try:
            for worker in self.running.values():
                worker.process.wait()
        finally:
            self._kill()

    def close(self) -> None:
        """End idle workers."""
        for worker in self.running.values():
            worker.close()
        with suppress(subprocess.TimeoutExpired):
            for worker in self.running.values():
                worker.process.wait(_KILL_AFTER)
        self._kill()

    def _kill(self) -> None:
        for worker in self.running.values():
            worker.kill()

    def _environment(self, slot: int) -> dict[str, str]:
        device = self.devices[slot]
        visible = {} if device is None else {"CUDA_VISIBLE_DEVICES": device}
        return {
            "OMP_NUM_THREADS": str(max(1, cores() // len(self.devices))),
            **os.environ,
            **visible,
            "PYTHONPATH": os.pathsep.join(sys.path),
            processes.PARENT: str(os.getpid()),
        }
