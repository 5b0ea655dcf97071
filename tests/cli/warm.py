"""Calls of `ptrun` that share the seconds of importing torch, and nothing else.

`python -m tests.cli.warm` imports what a run needs and forks for every line it reads: each call is
a process of its own, with its own folder, streams and exit code, and ends as any other does. What
depends on the start (imports, signals, the environment) is tested in a fresh process instead.
"""

import gc
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path

IMPORTED = (
    "ptrun.runs.recipe",
    "ptrun.planning.preview",
    "ptrun.ledger.report",
    "ptrun.runs.launch",
    "ptrun.backbone.masked",
    "ptrun.task.tagging",
)
IMPORTED += ("hydra", "pandas", "rich.console", "rich.progress")
IMPORTED += ("transformers.models.bert.modeling_bert", "transformers.models.auto.modeling_auto")
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

    def run(self, arguments, cwd):
        with tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder, "out"), Path(folder, "err")
            call = {"arguments": arguments, "streams": [os.devnull, str(out), str(err)]}
            print(json.dumps({**call, "cwd": str(cwd)}), file=self.process.stdin, flush=True)
            code = int(self.process.stdout.readline())
            done = subprocess.CompletedProcess(arguments, code, out.read_text(), err.read_text())
        assert SECRET not in done.stdout + done.stderr, arguments
        assert code != -signal.SIGALRM, f"more than {SECONDS} s: {done}"
        return done

    def stop(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def serve():
    """Return in a fork for every call there is; the first process answers with exit codes."""
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            return json.loads(line)
        _, status = os.waitpid(process, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    sys.exit()


def become(call):
    """Give this process what a call from a shell has."""
    signal.alarm(SECONDS)
    for number, name in enumerate(call["streams"]):
        file = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(file, number)
        os.close(file)
    os.chdir(call["cwd"])
    sys.argv[1:] = call["arguments"]
    sys.path[0] = call["cwd"]
    runpy.run_module("ptrun", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    sys.modules["triton"] = None  # it would tell at the end that frozen objects were not freed
    for name in IMPORTED:
        import_module(name)
    gc.freeze()  # a fork copies no page to count what it never frees
    become(serve())
