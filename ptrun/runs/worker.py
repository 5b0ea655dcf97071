"""`python -m ptrun.runs.worker`: plans and does runs of a sweep, one request a line.

A request is JSON on standard input. `{"plan": {"0": CONFIGURATION, ...}}` asks what the scheduler
needs to know about runs; `{"run": {...}, "again": [0], "log": FILE}` does runs together. An answer
is one line on standard output: a list of `PlannedRun`s, or of `RunEnd`s. Everything else that a run
prints goes to the log.
"""

import errno
import gc
import json
import os
import sys
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from ptrun.errors import RankLost, RunFailed, UserError, explained, is_panic
from ptrun.files import created
from ptrun.hardware import processes
from ptrun.hardware.environment import done, imported, importing, log_to_stderr, prepare
from ptrun.training import stopping

Kind = Literal["finished", "failed", "refused", "busy"]
_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_IMPORTED_EARLY = ("ptrun.runs.launch", "transformers.modeling_utils")


@dataclass(frozen=True)
class PlannedRun:
    """A planned run: its folder, shape and the size of its group; or why it is refused.

    `unkept` are the bytes of its tuned model, if that is not kept. `after` are the unfinished runs
    that it needs: the configuration of each as text, by folder.
    """

    index: int
    folder: str = ""
    shape: str | None = None
    most: int = 1
    refused: str | None = None
    unkept: int = 0
    after: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RunEnd:
    """How a run ended, and the text of its error."""

    index: int
    kind: Kind = "finished"
    text: str = ""


class Runs:
    """The runs that this process has planned, by their index in the sweep."""

    def __init__(self) -> None:
        self.planned: dict[int, Any] = {}

    def run(self, configurations: Mapping[str, str], again: list[int]) -> list[RunEnd]:
        """Do runs together; those in `again` start anew although they have failed."""
        from ptrun.runs.launch import launch_together
        from ptrun.runs.plan import plan

        ends, ready = [], dict[int, Any]()
        for index, text in ((int(key), text) for key, text in configurations.items()):
            try:
                planned = self.planned.pop(index, None) or plan(processes.read_text(text))
            except UserError as error:
                ends.append(_end(index, error))
            else:
                ready[index] = replace(planned, rerun=True) if index in again else planned
        return [*ends, *map(_end, ready, launch_together([*ready.values()]))]

    def facts(self, index: int, text: str) -> PlannedRun:
        """Return the facts of a run."""
        from ptrun.folder import result
        from ptrun.runs.plan import plan, shape, unkept

        try:
            planned = plan(processes.read_text(text))
        except Exception as error:
            told = error if isinstance(error, UserError) else explained(error)
            if told is None:
                raise
            return PlannedRun(index, refused=str(told))
        if not (planned.folder / result.FINISHED).is_file():
            self.planned[index] = planned
        most = planned.hardware.population
        facts = str(planned.folder), shape(planned), most
        after = {
            str(other.folder): processes.text_of(other.request)
            for other in planned.needs
            if not (other.folder / result.FINISHED).is_file()
        }
        return PlannedRun(index, *facts, unkept=unkept(planned), after=after)


def _end(index: int, ended: Any) -> RunEnd:
    from ptrun.folder.lease import Busy

    if isinstance(ended, UserError):
        return RunEnd(index, "busy" if isinstance(ended, Busy) else "refused", str(ended))
    return RunEnd(index, "failed", str(ended)) if isinstance(ended, RunFailed) else RunEnd(index)


def _answer(runs: Runs, request: dict[str, Any]) -> list[PlannedRun] | list[RunEnd]:
    if "plan" in request:
        return [runs.facts(int(index), text) for index, text in request["plan"].items()]
    with created(Path(request["log"])) as log:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
    return _attempt(runs, request["run"], request["again"])


def _attempt(runs: Runs, configurations: Mapping[str, str], again: list[int]) -> list[RunEnd]:
    """Do runs; after an error that ends all of them one by one, so that it ends its own run only.

    On a full disk each would fail, and they would go on one by one.
    """
    try:
        with stopping.heard():
            return runs.run(configurations, again)
    except BaseException as error:
        if not (isinstance(error, Exception) or is_panic(error)):
            raise
        told = error if isinstance(error, UserError | RunFailed) else explained(error)
        if not isinstance(error, RankLost) and told is None:
            traceback.print_exc()
        if len(configurations) == 1 or getattr(error, "errno", None) in _OF_THE_DISK:
            text = str(told or f"{type(error).__name__}: {error}")
            return [RunEnd(int(index), "failed", text) for index in configurations]
    gc.collect()
    attempts = [_attempt(runs, {index: text}, again) for index, text in configurations.items()]
    return [end for ends in attempts for end in ends]


def main() -> None:
    """Answer requests until standard input ends."""
    importing()
    processes.exit_with_parent(os.environ)
    prepare()
    stopping.install()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    log_to_stderr()
    runs = Runs()
    try:
        for name in _IMPORTED_EARLY:
            import_module(name)
        imported()  # before the first backbone: what it freezes in a cycle is never freed
        for line in sys.stdin:
            answer = [asdict(record) for record in _answer(runs, json.loads(line))]
            print(json.dumps(answer), file=answers, flush=True)
        done()
    except stopping.Stopped as stopped:
        print(stopped, file=sys.stderr, flush=True)
        os._exit(128 + stopped.number)


if __name__ == "__main__":
    main()
