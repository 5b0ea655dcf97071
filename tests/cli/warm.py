"""Processes that share the seconds of importing torch, and nothing else.

`python -m tests.cli.warm` imports what a run needs and forks for every call: each is a process of
its own, with its own folder, streams, environment and exit code, and ends as any other does. The
workers of a sweep and the ranks of a run that `ptrun` starts are forks of it for the same reason.
What depends on the start (imports, and what they read of the environment) is tested in a fresh
process instead.
"""

import gc
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

from tests import parts
from workshop.drill import warm as drill

IMPORTED = (*drill.IMPORTED, "ptrun.planning.preview", "ptrun.sweeps.sweep", "ptrun.task.tagging")
IMPORTED += ("ptrun.backbone.attention", "ptrun.pocket.tasks", "hydra", "pandas", "rich.console")
IMPORTED += ("transformers.models.auto.modeling_auto", "pyarrow.pandas_compat", "torch.profiler")
SECONDS = 240
SECRET = "hf_owned_secret_7f3a"
"""The value of variables of the environment; no command may print it."""


class Warm:
    """The process that imports and forks; `run` answers as `subprocess.run` does."""

    def __init__(self):
        line = [sys.executable, "-m", "tests.cli.warm"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        own = {**os.environ, "HF_TOKEN": SECRET, "DB_PASSWORD": SECRET}
        self.process = subprocess.Popen(line, cwd=Path(__file__).parents[2], env=own, **pipes)

    def run(self, arguments, cwd, environment=None):
        with self.start(["-m", "ptrun", *arguments], cwd, environment) as started:
            code = started.wait()
        done = subprocess.CompletedProcess(arguments, code, started.out, started.err)
        assert SECRET not in done.stdout + done.stderr, arguments
        assert code != -signal.SIGALRM, f"more than {SECONDS} s: {done}"
        return done

    def start(self, line, cwd, environment=None, imports=(), seconds=SECONDS):
        """Start `python LINE`: `-m MODULE ...` or `-c CODE ...`; `imports` come first.

        `environment` is added to that of the tests.
        """
        return Started(self, line, cwd, environment or {}, imports, seconds)

    def ask(self, **question):
        """Return what the process answers."""
        print(json.dumps(question), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def stop(self):
        with self.process:
            self.process.kill()


class Started:
    """A process that runs, as a `Popen`; its streams are files."""

    def __init__(self, warm, line, cwd, environment, imports, seconds):
        self.warm, self.returncode, self.out, self.err = warm, None, None, None
        self.folder = tempfile.TemporaryDirectory()
        self.files = [Path(self.folder.name, name) for name in ("out", "err")]
        for file in self.files:  # a kill may hit before the process opens them
            file.touch()
        call = {"line": line, "streams": [os.devnull, *map(str, self.files)], "cwd": str(cwd)}
        call |= {"environment": environment, "imports": imports, "seconds": seconds}
        self.pid = warm.ask(call=call)

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        if self.returncode is None:
            self.send_signal(signal.SIGKILL)
            self.wait()

    def poll(self):
        if self.returncode is None:
            self._ended(self.warm.ask(poll=self.pid))
        return self.returncode

    def wait(self, timeout=None):
        if timeout is None and self.returncode is None:
            self._ended(self.warm.ask(wait=self.pid))
        until = time.monotonic() + (timeout or 0)
        while self.poll() is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(0.01)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def first_error(self):
        """Return the first line of the errors, once it is written."""
        while self.poll() is None:
            if "\n" in (text := self.files[1].read_text()):
                return text.partition("\n")[0]
            time.sleep(0.01)
        return self.err.partition("\n")[0]

    def _ended(self, code):
        if code is not None:
            self.returncode = code
            self.out, self.err = (file.read_text() for file in self.files)
            self.folder.cleanup()


def serve():
    """Return in a fork for every call there is; the first process answers with ids and codes."""
    for line in sys.stdin:
        ((what, asked),) = json.loads(line).items()
        if what == "call":
            for name in asked["imports"]:
                import_module(name)
            answer = os.fork()
            if answer == 0:
                return asked
        else:
            ended, status = os.waitpid(asked, os.WNOHANG if what == "poll" else 0)
            answer = os.waitstatus_to_exitcode(status) if ended else None
        print(json.dumps(answer), file=ANSWERS, flush=True)
    sys.exit()


def become(call):
    """Give this process what a call from a shell has, and do its work."""
    signal.alarm(call["seconds"])
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
    for number, name in enumerate(call["streams"]):
        file = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(file, number)
        os.close(file)
    ANSWERS.close()
    os.environ.update(call["environment"])
    os.chdir(call["cwd"])
    kind, what, *rest = call["line"]
    sys.argv[1:] = rest
    sys.path[0] = call["cwd"]
    subprocess.Popen = drill.Forked
    if kind == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        sys.argv[0] = kind
        exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    ANSWERS = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print while they are imported
    sys.modules["triton"] = None  # it would tell at the end that frozen objects were not freed
    for name in IMPORTED:
        try:
            import_module(name)
        except ModuleNotFoundError:
            if not parts.ABSENT:
                raise
    gc.freeze()  # a fork copies no page to count what it never frees
    become(serve())
