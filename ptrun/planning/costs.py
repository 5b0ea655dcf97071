"""What a run needs, from its configuration alone: parameters, memory, steps and time."""

from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil
from statistics import mean

import torch

from ptrun.config.compose import Composed
from ptrun.errors import UserError
from ptrun.method.base import Method
from ptrun.planning.memory import HardwareLayout, Memory, Sizes, memory
from ptrun.runs.examples import split_of, usable
from ptrun.runs.plan import Plan, plan
from ptrun.start.pretraining import is_made
from ptrun.training.optim import total_steps
from ptrun.types import Split


def planned_on(composed: Composed, layout: HardwareLayout) -> Plan:
    """Return the plan of a run, with a layout for an engine that this machine may not have."""
    return plan(composed, engine=lambda _backbone: layout)


def alike(planned: Plan) -> str:
    """Return what decides memory and time: seeds and learning rates do not."""
    content = {k: v for k, v in planned.content.items() if k not in ("seed", "data_seed", "start")}
    keys = ("batch_size", "max_steps", "epochs", "eval_every")
    train = {key: content["train"][key] for key in keys}
    return repr({**content, "train": train, "hardware": planned.hardware})


def method_of(planned: Plan) -> Method:
    """Return the method on the meta device, without weights and tokenizer."""
    with torch.device("meta"):
        return planned.build_method()


# The length and number of texts, if data and tokenizer are on this machine.

LENGTH = 256
"""Tokens of a text of unknown length."""
_SOME = 256  # examples whose length is measured


@dataclass(frozen=True)
class Texts:
    """Tokens of the longest text, the origin of that length, and tokens of a mean text.

    `train`, `dev` and `test` are numbers of examples, None if they are not known. `answer` is the
    tokens of the longest answer that is written.
    """

    length: int
    origin: str
    mean: int
    train: int | None = None
    dev: int | None = None
    test: int | None = None
    answer: int = 0


def texts(planned: Plan, length: int | None, split: Split | None = None) -> Texts:
    """Return the length of texts, `length` if given; nothing is downloaded.

    `split` has the examples; without it, they are read if they are on this machine.
    """
    method, source = method_of(planned), planned.source
    if source is None:
        here = planned.task.answer != "several"
    else:  # another run makes the examples of a corpus
        here = "pocket" in source.origin or source.exists("train")
        here = here and not is_made(planned.request.task)
    if split is None and here:
        with suppress(UserError):  # the run reports the error; a plan needs no data
            split = usable(method, split_of(planned)[0])
    room, longest = method.room(), method.readout.longest * method.readout.writes
    counts = {part: len(getattr(split, part)) for part in ("train", "dev", "test") if split}
    if length is not None:
        if length > room:
            name = planned.backbone.name
            raise UserError(f"length is {length}; {name} reads at most {room} tokens here.")
        return Texts(length, "as requested", length, answer=longest, **counts)
    if split and split.train and planned.backbone.folder is not None:
        some = split.train[:: max(1, len(split.train) // _SOME)][:_SOME]
        features = method.encode(some)
        tokens = [f.tokens for f in features]
        answer = min(longest, max(len(f.targets) for f in features))
        origin = f"the longest of {len(some)} training examples"
        return Texts(max(tokens), origin, ceil(mean(tokens)), answer=answer, **counts)
    assumed = min(room, planned.task.max_tokens or LENGTH)
    return Texts(
        assumed, "assumed; --length N plans for another", assumed, answer=longest, **counts
    )


@dataclass
class Costs:
    """What a run needs for texts of some length."""

    planned: Plan
    texts: Texts
    method: Method = field(init=False)
    sizes: Sizes = field(init=False)

    def __post_init__(self) -> None:
        """Count parameters."""
        self.method = method_of(self.planned)
        self.sizes = Sizes(self.method, self.texts.answer)

    def memory(self, layout: HardwareLayout) -> Memory:
        """Return the memory of a rank; a backbone that cannot be divided is refused."""
        return memory(self.sizes, layout, self.planned.train.batch_size, self.texts.length)

    def steps(self) -> int | None:
        """Return the optimizer steps of a run; None if the number of examples is unknown."""
        train, done = self.planned.train, self.planned.start.steps
        if train.max_steps is None and self.texts.train is None:
            return None
        return total_steps(train, ceil((self.texts.train or 1) / train.batch_size)) - done

    def seconds(self, tflops: float) -> float | None:
        """Return the seconds of a run at `tflops` TFLOP/s; None if the data are not known.

        Products of matrices alone are counted, so `tflops` is what a device sustains in training,
        not its peak. A step takes a forward pass and one or two as much for gradients: of
        activations, and of learned weights.
        """
        steps, texts, train = self.steps(), self.texts, self.planned.train
        if steps is None or texts.dev is None or texts.test is None:
            return None
        passes = 1 + bool(self.sizes.learned["total"]) + self.sizes.tunes
        every = train.eval_every or ceil((texts.train or 1) / train.batch_size)
        answers = texts.dev * (steps // max(1, every)) + texts.test
        rows = steps * train.batch_size * passes + answers
        return rows * self.sizes.operations(texts.mean) / (tflops * 1e12)
