"""Conformance tests of parts from outside, which the tests of a package call; and `read`.

    from ptrun import testing

    def test_my_method():
        testing.check_method("my_method")

    def test_my_kind_of_task():
        testing.check_task("my_task", "data_dir=tests/data")

    def test_my_command():
        testing.check_command("my_command")

Each part is tried with the models and tasks that ptrun ships. Every combination that is not
refused trains two steps, and must keep the promises in `Trial`. A part is named as it is typed;
its own code is imported without `ptrun trust`. Overrides hold for all runs.
"""

import math
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from ptrun.backbone.base import BackboneOutput, checksum
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.config.compose import Composed, compose_run
from ptrun.config.trust import TRUST
from ptrun.errors import UserError
from ptrun.hardware.torch_engine import TorchEngine
from ptrun.method.base import Method, built
from ptrun.planning import grid
from ptrun.planning.overview import StepClock
from ptrun.readout.base import Batch, collate
from ptrun.runs.examples import usable
from ptrun.task.dataset import Task
from ptrun.tracking.trackers import Trackers
from ptrun.training.member import Member
from ptrun.types import Example, Prediction, RunResult, Split

METHODS = ("fine_tuning", "ptuning_v2", "prompt_tuning", "lora")
"""The methods with which a task, a read-out and a backbone are tried."""
KINDS = ("classification", "multilabel", "regression", "choice", "tagging", "tags", "extraction")
"""The kinds of task with which a backbone is tried."""
_STEPS, _FEW, _SOME = 2, 4, 100
HEAVY = ("torch", "transformers", "datasets", "numpy", "matplotlib", "jinja2")
"""What no command imports before it is run."""
_CLOSE = 1e-4  # of a predicted number, between batches of other shapes


def read(*overrides: str, examples: Sequence[Example] = ()) -> tuple[Method, Batch, BackboneOutput]:
    """Return a method, a batch of `examples`, and what its backbone returns for it.

    The examples are two of the task's test examples by default. Task and backbone are small ones
    that ptrun ships, unless overrides name others.

    >>> from ptrun.testing import read
    >>> method, batch, output = read("method=ptuning_v2")
    >>> method.readout.scores(output, batch).shape  # [B, C]
    torch.Size([2, 2])
    """
    usual = [] if any(o.startswith("task=") for o in overrides) else ["task=pocket_sentiment"]
    composed = compose_run([*usual, *overrides])
    parts = composed.components()
    backbone: PretrainedBackbone = parts["backbone"].build()
    task: Task = parts["task"].build(composed.data_dir, None)
    backbone.load()
    method = built(parts["method"], composed.readout, backbone, task)
    method.placed()
    features = method.encode(examples or task.load("test")[:2])
    batch = collate(features, None, torch.device("cpu"))
    with torch.no_grad():
        return method, batch, backbone.forward(method.inputs(batch))


def check_method(
    option: str, *overrides: str, backbones: Sequence[str] = grid.BACKBONES
) -> list[str]:
    """Try a method on shipped backbones and kinds of task; return the names of what was tried.

    Raises:
        AssertionError: a combination breaks a promise, or all are refused.
    """
    return _check([[f"method={option}"]], backbones, grid.TASKS, overrides)


def check_readout(
    option: str,
    *overrides: str,
    methods: Sequence[str] = METHODS,
    backbones: Sequence[str] = grid.BACKBONES,
) -> list[str]:
    """Try a read-out with some methods, as `check_method` does."""
    rows = [[f"method={method}", f"readout={option}"] for method in methods]
    return _check(rows, backbones, grid.TASKS, overrides)


def check_task(
    option: str,
    *overrides: str,
    methods: Sequence[str] = METHODS,
    backbones: Sequence[str] = grid.BACKBONES,
) -> list[str]:
    """Try a task, or a kind of task, with some methods on shipped backbones."""
    rows = [[f"method={method}"] for method in methods]
    return _check(rows, backbones, {option: option}, overrides)


def check_backbone(option: str, *overrides: str, methods: Sequence[str] = METHODS) -> list[str]:
    """Try a backbone, or its family, with some methods on the shipped kinds of task."""
    rows = [[f"method={method}"] for method in methods]
    return _check(rows, (option,), {kind: grid.TASKS[kind] for kind in KINDS}, overrides)


def check_tracker(option: str, *overrides: str) -> None:
    """Send a run to a tracker as `tracking=OPTION` does.

    Raises:
        AssertionError: it raised an error, or was too slow.
    """
    os.environ[TRUST] = "1"
    component = compose_run([f"tracking={option}", *overrides]).components()["tracking"]
    with TemporaryDirectory() as folder:
        run = Path(folder) / "outputs" / "run-1"
        run.mkdir(parents=True)
        trackers: Trackers = component.build(run, "run-1", {"seed": 1})
        for step in (1, 2):
            trackers.log({"event": "step", "step": step, "loss": 1.0 / step})
        trackers.log({"event": "dev", "step": 2, "accuracy": 50.0})
        scores = {"dev": {"accuracy": 50.0}, "test": {"accuracy": 40.0}}
        trackers.finish(RunResult("run-1", "g", "finished", {}, 1, "accuracy", scores))
        off = [guard.name for guard in trackers.guards if guard.off]
    assert trackers.guards and not off, f"tracking={option} was turned off; its warning says why"


def check_command(name: str, *arguments: str, run: bool = True) -> str:
    """Try a command, or a kind of import, as `"my_command"` or `"import my_kind"`.

    It is listed with its first line; `--help` shows examples and imports nothing of `HEAVY`; an
    unknown option is refused by name, with exit code 1. Then the command is run, unless `run` is
    false: it must end with exit code 0, and what it prints is returned.

    Args:
        name: the words after `ptrun`.
        arguments: those with which it can be run.
        run: whether it is run.

    Raises:
        AssertionError: one of these does not hold.
    """
    *above, command = name.split()
    listed = _typed(*above, "--help").splitlines()
    line = next((line for line in listed if line.split()[:1] == [command]), "")
    assert len(line.split()) > 1, f"ptrun {' '.join([*above, '--help'])} has no line of {command}"
    assert "examples:" in _typed(*above, command, "--help"), f"{name} --help shows no examples"
    refused = _typed(*above, command, *arguments, "--no-such-option", code=1)
    assert "--no-such-option" in refused, f"{name} --no-such-option: the error does not name it"
    return _typed(*above, command, *arguments) if run else ""


def _typed(*arguments: str, code: int = 0) -> str:
    """Return what a command prints, after checking its exit code; help imports nothing heavy."""
    script = "import sys\nfrom ptrun.cli import main\ntry:\n    main()\nfinally:\n"
    script += f"    print('imports:', *{{*{HEAVY!r}}} & {{*sys.modules}})"
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    output, _, imports = done.stdout.rpartition("imports:")
    line = f"ptrun {' '.join(arguments)}"
    assert done.returncode == code, f"{line}: exit code {done.returncode}\n{done.stderr}"
    assert "Traceback" not in done.stderr, f"{line}: a traceback\n{done.stderr}"
    assert arguments[-1] != "--help" or not imports.split(), f"{line} imports {imports}"
    return output + done.stderr


def _check(
    rows: Sequence[Sequence[str]],
    backbones: Sequence[str],
    tasks: Mapping[str, str],
    overrides: Sequence[str],
) -> list[str]:
    os.environ[TRUST] = "1"
    tried, refused = [], {}
    for name, trial in _trials(rows, backbones, tasks, overrides):
        if isinstance(trial, str):
            refused[name] = trial
            continue
        trial.keeps_promises()
        tried.append(name)
    assert tried, "all combinations are refused: " + "; ".join(dict.fromkeys(refused.values()))
    return tried


def _trials(
    rows: Sequence[Sequence[str]],
    backbones: Sequence[str],
    tasks: Mapping[str, str],
    overrides: Sequence[str],
) -> Iterator[tuple[str, "Trial | str"]]:
    """Yield each combination with its name: a trial, or why it is refused or has no data."""
    runs = []
    for backbone, row in product(backbones, rows):
        composed = compose_run([f"backbone={backbone}", *row, *overrides])
        model = cache(composed.components()["backbone"].build)
        runs.append((" ".join([*row, f"backbone={backbone}"]), composed, model))
    for kind, option in tasks.items():
        task = grid.task_of([f"task={option}", *overrides])
        try:
            dev = _some(task.load("dev"), _SOME)
            split = Split(_some(task.load("train"), _SOME), dev, dev, {})
        except UserError as error:
            yield kind, str(error)
            continue
        for typed, composed, model in runs:
            name = f"{typed} task={option}"
            method = composed.components()["method"].target
            why = grid.refusal(method, grid.readout_of(composed, task), model, task)
            try:
                yield name, why or Trial(name, composed, task, split)
            except UserError as error:  # known once the method is built
                yield name, str(error)


def _some(examples: Sequence[Example], count: int) -> list[Example]:
    """Return so many examples from all over, so that each data set of several has one."""
    return list(examples[:: max(1, len(examples) // count)][:count])


class Trial:
    """One combination of method, read-out, backbone and task, and the promises it must keep.

    Args:
        name: as it is typed, for messages.
        composed: the configuration.
        task: the task.
        split: its examples.

    Raises:
        UserError: the combination cannot be built.
    """

    def __init__(self, name: str, composed: Composed, task: Task, split: Split):
        self.name, self.composed, self.task = name, composed, task
        self.method = self._built()
        split = usable(self.method, split)
        self.method.readout.weigh(split.train)
        train, dev = _some(split.train, _FEW), _some(split.dev, _FEW)
        self.split = replace(split, train=train, dev=dev)

    def keeps_promises(self) -> None:
        """Train two steps and check each promise.

        Raises:
            AssertionError: one is broken.
        """
        engine = self._engine(self.method)
        method, task, dev = self.method, self.task, self.split.dev
        member = Member(
            method,
            method.encode(self.split.train),
            method.encode(dev),
            lambda predictions: task.score(predictions, dev),
            task.metric,
            replace(self.composed.train, max_steps=_STEPS, batch_size=_FEW),
            1,
            StepClock(),
        )
        before = {name: tensor.detach().clone() for name, tensor in member.learned.items()}
        tuned = {id(tensor) for tensor in member.learned.values()}
        model = self.method.backbone.model
        frozen = {n: p.clone() for n, p in model.named_parameters() if id(p) not in tuned}
        weights = checksum(model)
        engine.fit([member])
        self._promise(member.failed is None, f"it trains; it failed: {member.failed}")
        now = dict(model.named_parameters())
        still = all(torch.equal(now[name], tensor) for name, tensor in frozen.items())
        still &= self.method.tunes_backbone or checksum(model) == weights
        self._promise(still, "weights that it does not learn stay as they are")
        moved = any(
            not torch.equal(tensor, before[name]) for name, tensor in member.learned.items()
        )
        self._promise(moved or not before, "something that it learns changes")
        # The answers: one for each example, whatever is beside it, and after loading.
        answers = self._answers(engine, self.method)
        ids = [example.id for example in self.split.dev]
        self._promise([a.id for a in answers] == ids, "each example has one answer, in order")
        score = self.task.score(answers, self.split.dev).get(self.task.metric, math.nan)
        self._promise(math.isfinite(score), f"score returns {self.task.metric}, a number")
        backwards = self._answers(engine, self.method, backwards=True)
        self._promise(_same(answers, backwards), "no answer depends on the others of a batch")
        fresh = self._built()
        again = self._engine(fresh)
        fresh.load_exported(self.method.exported())
        fresh.readout.texts_before = self.method.readout.texts_before  # of its manifest
        self._promise(_same(answers, self._answers(again, fresh)), "what is saved answers the same")

    def _promise(self, holds: bool, promise: str) -> None:
        assert holds, f"{self.name} breaks a promise: {promise}"

    def _built(self) -> Method:
        """Return a method on a newly loaded backbone."""
        torch.manual_seed(1)
        components = self.composed.components()
        backbone: PretrainedBackbone = components["backbone"].build()
        readout = grid.readout_of(self.composed, self.task)
        method = built(components["method"], readout, backbone, self.task)
        self._engine(method, load=True)
        return method

    def _engine(self, method: Method, *, load: bool = False) -> TorchEngine:
        engine: TorchEngine = self.composed.components()["hardware"].build(method.backbone)
        if load:
            engine.load(tuned=method.tunes_backbone)
        engine.place([method])
        return engine

    def _answers(
        self, engine: TorchEngine, method: Method, *, backwards: bool = False
    ) -> list[Prediction]:
        """Return the answers of dev; `backwards` reads the examples one by one, the last first."""
        examples = [*self.split.dev]
        if not backwards:
            return engine.predict([method], [method.encode(examples)])[0]
        usual, engine.token_budget = engine.token_budget, 1
        try:
            return engine.predict([method], [method.encode(examples[::-1])])[0][::-1]
        finally:
            engine.token_budget = usual


def _same(left: Sequence[Prediction], right: Sequence[Prediction]) -> bool:
    """Return whether answers are equal; numbers to 1e-4, for the rounding of other batches."""
    pairs = [(a.value, b.value) for a, b in zip(left, right, strict=True)]
    return all(
        abs(a - b) < _CLOSE * max(1.0, abs(a)) if isinstance(a, float) else a == b for a, b in pairs
    )
