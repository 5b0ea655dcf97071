"""Commands that share the seconds of importing torch, and nothing else.

`python -m workshop.drill.warm` imports what a run needs, and forks for every line it reads. Each
command is a process of its own, with its own folder, streams and exit code. The workers of a sweep
and the ranks of a run, which a command starts, are forks of it for the same reason.
"""

import argparse
import atexit
import gc
import json
import logging
import os
import resource
import runpy
import signal
import subprocess
import sys
import tempfile
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn, TextIO

from workshop.command import run

IMPORTED = (
    *("ptrun.runs.launch", "ptrun.runs.recipe", "ptrun.planning.preview", "ptrun.cli"),
    *("ptrun.runs.worker", "ptrun.reporting.table", "ptrun.sweeps.search", "rich.progress"),
    *("ptrun.backbone.masked", "ptrun.backbone.seq2seq", "ptrun.predicting.answering"),
    *("workshop.random_model", "workshop.adapt", "pyarrow.ipc"),
    *("ptrun.importing.spans", "ptrun.exporting.export", "ptrun.command.report"),
    *("transformers.models.bert.modeling_bert", "transformers.models.t5.modeling_t5"),
    *("transformers.models.auto.modeling_auto", "transformers.models.auto.tokenization_auto"),
)
RANKS = ("deepspeed", "ptrun.hardware.deepspeed_engine", "ptrun.backbone.tensor_parallel")
HAS_RANKS = find_spec("deepspeed") is not None
SECONDS = 300  # after which a command counts as hanging
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Called:
    """How a command ended: its exit code, negative for a signal, and what it printed."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Call:
    """What a shell gives a command.

    Args:
        arguments: those of `ptrun`, or a module of the workshop and its own.
        cwd: the current folder.
        environment: variables.
        set: values of `module:NAME`, in place of those in the code.
        limit: most bytes of a file; None is no limit.
    """

    arguments: Sequence[str]
    cwd: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    set: Mapping[str, Any] = field(default_factory=dict)
    limit: int | None = None


class Warm:
    """The process that imports and forks; it does one command at a time."""

    def __init__(self) -> None:
        line = [sys.executable, "-m", "workshop.drill.warm"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(
            line, cwd=_ROOT, env=environment, stderr=subprocess.DEVNULL, **pipes
        )

    def run(self, call: Call) -> Called:
        """Do a command."""
        return self.start(call).end()

    def start(self, call: Call) -> "Running":
        """Start a command."""
        folder = tempfile.TemporaryDirectory(prefix="drill-")
        streams = [os.devnull, f"{folder.name}/out", f"{folder.name}/err"]
        for name in streams[1:]:  # a kill may hit before the command opens them
            Path(name).touch()
        plain = {**vars(call), "cwd": str(call.cwd), "streams": streams}
        assert self.process.stdin is not None
        print(json.dumps(plain), file=self.process.stdin, flush=True)
        return Running(self, self.answer(), folder)

    def answer(self) -> int:
        """Return the next number that the process prints."""
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())

    def stop(self) -> None:
        """End the process."""
        with self.process:
            self.process.kill()


class Running:
    """A command that runs."""

    def __init__(self, warm: Warm, pid: int, folder: "tempfile.TemporaryDirectory[str]"):
        self.pid, self._warm, self._folder = pid, warm, folder

    def end(self) -> Called:
        """Wait for the end."""
        code = self._warm.answer()
        with self._folder as folder:
            texts = [Path(folder, name).read_text(errors="replace") for name in ("out", "err")]
        return Called(code, *texts)

    def is_alive(self) -> bool:
        """Return whether the command itself still runs."""
        return Path(f"/proc/{self.pid}").exists()

    def processes(self) -> list[int]:
        """Return the command and those it has started, if they still run."""
        return family(self.pid)


def family(pid: int) -> list[int]:
    """Return a process and its children; a process that has ended has none."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    try:
        return [pid, *(own for child in children.read_text().split() for own in family(int(child)))]
    except OSError:
        return []


class Forked(subprocess.Popen[Any]):
    """A process of Python that is a fork in place of a new start; others start as usual."""

    def _execute_child(self, args: Any, executable: Any, preexec: Any, *others: Any) -> None:
        _, _, _, env, _, _, _, *pipes = others[:13]
        own = list(args) if isinstance(args, list | tuple) else []
        if own[:1] != [sys.executable] or "-m" not in own:
            super()._execute_child(args, executable, preexec, *others)  # type: ignore[misc]
            return
        self.pid = os.fork()
        if self.pid == 0:
            streams = pipes[0], pipes[3], pipes[5]
            leave(lambda: _become_module(own[own.index("-m") + 1 :], env, streams))
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def _become_module(line: list[str], env: Mapping[str, str], streams: Sequence[int]) -> None:
    """Run a module as a new process does."""
    os.setsid()
    for number, file in enumerate(streams):
        if file != -1:
            os.dup2(file, number)
    os.closerange(3, 1024)  # a new process inherits no others
    _renew(env)
    sys.argv = list(line)
    runpy.run_module(line[0], run_name="__main__", alter_sys=True)


def leave(act: Callable[[], object]) -> NoReturn:
    """Act, and end this process with its exit code, without the cleanup of libraries."""
    code = 0
    try:
        act()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _renew(env: Mapping[str, str]) -> None:
    """Forget what the parent has that a new process has not."""
    os.environ.clear()
    os.environ.update(env)
    atexit._clear()
    weakref.finalize._registry.clear()  # type: ignore[attr-defined]  # temporary folders
    weakref.finalize._registered_with_atexit = False  # type: ignore[attr-defined]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL)
    signal.alarm(SECONDS)
    logging.getLogger("ptrun").handlers.clear()
    sys.stdin, sys.stdout, sys.stderr = (open(n, m) for n, m in enumerate("rww"))  # noqa: SIM115


def serve(answers: TextIO) -> dict[str, Any]:
    """Return in a fork for every call; answer with its process id, then with its exit code."""
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            answers.close()
            return dict(json.loads(line))
        print(process, file=answers, flush=True)
        _, status = os.waitpid(process, 0)
        print(os.waitstatus_to_exitcode(status), file=answers, flush=True)
    sys.exit()


def become(call: Mapping[str, Any]) -> None:
    """Give this process what a call from a shell has, and do the command."""
    signal.alarm(SECONDS)
    for number, name in enumerate(call["streams"]):
        file = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(file, number)
        os.close(file)
    os.environ.update({"PWD": call["cwd"], **call["environment"]})
    for name, value in call["set"].items():
        module, _, attribute = name.partition(":")
        setattr(import_module(module), attribute, value)
    if call["limit"] is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (call["limit"], resource.RLIM_INFINITY))
    os.chdir(call["cwd"])
    sys.argv[1:] = call["arguments"]
    sys.path[0] = call["cwd"]
    subprocess.Popen = Forked  # type: ignore[misc]
    if sys.argv[1].startswith("workshop."):
        sys.exit(run(import_module(sys.argv[1]).main, sys.argv[2:]))
    runpy.run_module("ptrun", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    argparse.ArgumentParser("python -m workshop.drill.warm", description=__doc__).parse_args()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print while they are imported
    for name in (*IMPORTED, *(RANKS if HAS_RANKS else ())):
        import_module(name)
    gc.freeze()  # a fork copies no page to count what it never frees
    call = serve(answers)
    leave(lambda: become(call))
