"""One run inside a population: its batches, optimizer, schedule, selection and saved state.

The order of examples, the dropout keys and the learning rate are pure functions of (seed, step). So
a member resumes with the same bits and saves no random-number state.
"""

import hashlib
import logging
import math
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ptrun.backbone.dropout import RULE, row_keys
from ptrun.config.schema import Order, Select, Ties, TrainConfig
from ptrun.errors import UserError, of_device
from ptrun.method.base import Method
from ptrun.method.tokenized import Tokenized, picked
from ptrun.readout.base import Features
from ptrun.training.health import Health
from ptrun.training.optim import TorchStepper, learning_rate, make_optimizer, total_steps
from ptrun.types import Journal, Prediction

_LOG = logging.getLogger(__name__)
_BUCKET = 20  # batches, as PEFT's comparison has


def batches(
    features: Sequence[Features],
    size: int,
    seed: int,
    epoch: int,
    *,
    drop_last: bool = False,
    order_by: Order = Order.shuffled,
) -> Sequence[Sequence[int]]:
    """Return an epoch's batches of `size` indices, each of one data set, in 8 bytes an index.

    Examples of several data sets (MPT-2) are cut into batches set by set, and the batches are
    shuffled. `drop_last` leaves out smaller batches, unless there are no others.
    """
    order = shuffled(len(features), seed, epoch)
    if order_by is not Order.shuffled:
        order = torch.arange(len(features))
    if order_by is Order.buckets:
        lengths, bucket = [example.tokens for example in features], _BUCKET * size
        order = torch.tensor(sorted(order.tolist(), key=lambda i: (i // bucket, -lengths[i])))
    sets: dict[str, list[int]] = {}
    if len(features) and "set" in features[0].facts:
        names = [example.facts["set"] for example in features]
        for index in order.tolist():
            sets.setdefault(names[index], []).append(index)
    indices = [array("q", rows) for rows in sets.values()]
    indices = indices if len(sets) > 1 else [array("q", order.numpy().tobytes())]
    cut = [rows[i : i + size] for rows in indices for i in range(0, len(rows), size)]
    if len(sets) > 1:
        cut = [cut[i] for i in shuffled(len(cut), seed, epoch).tolist()]
    complete = [batch for batch in cut if len(batch) == size]
    return complete if drop_last and complete else cut


def shuffled(count: int, seed: int, epoch: int) -> Tensor:
    """Return the order `[count]` of examples in an epoch, a function of seed and epoch."""
    digest = hashlib.blake2b(f"order:{seed}:{epoch}".encode(), digest_size=7).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "little"))
    return torch.randperm(count, generator=generator)


SAVE_SECONDS = 20.0
"""A member saves at every evaluation, and in between when the last save is older than this."""

Score = Callable[[Sequence[Prediction]], Mapping[str, float]]
_MISFITS = (LookupError, TypeError, ValueError, AttributeError, StopIteration)
_COUNTS = ("step", "stale", "tokens", "best_step", "history")


def by_loss(train: TrainConfig, method: Method) -> bool:
    """Return whether the loss on dev selects."""
    if train.select is not Select.auto:
        return train.select is Select.loss
    return method.readout.writes and not method.readout.teaches


def check_select(train: TrainConfig, method: Method) -> None:
    """Refuse `train.select=loss` where a read-out trains on other rows than it predicts from."""
    if by_loss(train, method) and method.readout.teaches:
        raise UserError(
            f"train.select=loss: {type(method.readout).__name__} reads dev in another way than "
            "train, so it has no loss there; type train.select=metric or train.select=last."
        )


def save(members: Sequence["Member"]) -> None:
    """Write the states of members to their journals.

    All files are written before the first takes its place, so that a killed process leaves the
    members at one step. They go on with the same sums, to the last bit.
    """
    drafts = [member.journal.draft(*member.state()) for member in members]
    for member, keep in zip(members, drafts, strict=True):
        keep()
        member.saved_at = time.monotonic()


class Member:
    """A method in training.

    Args:
        method: its learned parameters get `requires_grad`.
        features: encoded training examples.
        dev: encoded dev examples.
        score: returns the metrics of predictions on dev.
        metric: the metric that selects; higher is better. `train.select=loss` selects instead.
        train: optimisation.
        seed: the model seed.
        journal: receives figures and saved states.
        select_best: keep the best evaluation (the first of equals), else the last step.
        floors: by step, what the best evaluation until then must reach for training to go on.
    """

    def __init__(
        self,
        method: Method,
        features: Sequence[Features],
        dev: Sequence[Features],
        score: Score,
        metric: str,
        train: TrainConfig,
        seed: int,
        journal: Journal,
        select_best: bool = True,
        floors: Mapping[int, float] | None = None,
    ):
        self.method, self.features, self.dev = method, features, dev
        self.score, self.train, self.seed, self.journal = score, train, seed, journal
        self.by_loss = by_loss(train, method)
        self.metric = "loss" if self.by_loss else metric
        self.floors = floors or {}
        self.select_best = select_best and train.select is not Select.last
        self.learned: dict[str, nn.Parameter] = method.learned()
        for parameter in self.learned.values():
            parameter.requires_grad_(True)
        self.optimizer = make_optimizer(train, self.learned, method.rates)
        self.stepper = TorchStepper(self.optimizer, self.learned)
        self.per_epoch = len(self._batches(0))
        self.total = total_steps(train, self.per_epoch) if self.learned else 0
        self.step, self.stale, self.tokens = 0, 0, 0
        self.best: dict[str, Tensor] = {}
        self.best_step, self.best_value = 0, -math.inf
        self.best_metrics: Mapping[str, float] = {}
        self.history: list[dict[str, Any]] = []
        self.failed: str | None = None
        self.health = Health()
        self.token_budget: int | None = None  # the engine's, after it was halved
        self.group: Sequence[str] = ()  # the runs that share its passes
        self.saved_at = time.monotonic()
        self._began = 0, self.saved_at  # the first step and the time of this process
        self.seconds = self.earlier = 0.0  # of training, in all and in earlier processes
        self._order: tuple[int, Sequence[Sequence[int]]] = (-1, [])
        self._read: dict[int, list[Features]] = {}  # the examples of this step and the next one

    @property
    def active(self) -> bool:
        """Whether training continues."""
        patience = self.train.patience
        exhausted = patience is not None and self.stale >= patience
        left = self.failed is None and self.step < self.total and not exhausted
        return left and not self.abandoned

    @property
    def abandoned(self) -> bool:
        """Whether the evaluations so far miss a floor."""
        best = -math.inf
        scored = [row for row in self.history if self.metric in row]
        for row in scored if self.floors else ():
            best = max(best, self._ranked(row)[self.metric])
            if best < self.floors.get(row["step"], -math.inf):
                return True
        return False

    @property
    def due(self) -> bool:
        """Whether an evaluation follows the last step."""
        every = self.train.eval_every or self.per_epoch
        return self.failed is None and (self.step % every == 0 or self.step == self.total)

    @property
    def selected_by(self) -> str:
        """What selects an evaluation: metric, loss or last."""
        if self.by_loss:
            return "loss"
        return "last" if self.train.select is Select.last else "metric"

    @property
    def writes(self) -> bool:
        """Whether the next evaluation writes texts: at each, or each k-th, if they select."""
        readout: Any = self.method.readout
        if not readout.writes:
            return False
        selects = self.select_best and not self.by_loss
        every = readout.write_every or (1 if selects else None)
        number = len(self.history) + 1
        return every is not None and (number % every == 0 or (selects and self.step == self.total))

    @property
    def due_first(self) -> bool:
        """Whether an evaluation comes before the first step, or replaces all steps."""
        before = self.train.eval_first or not self.total
        return before and self.step == 0 and not self.history and bool(self.dev)

    def batch(self) -> list[Features]:
        """Return the examples of the next step."""
        self._read = {s: rows for s, rows in self._read.items() if s == self.step}
        return self._examples(self.step)

    def look_ahead(self) -> None:
        """Tokenize the examples of the step after the next one, while a device computes."""
        if self.step + 1 < self.total:
            self._examples(self.step + 1)

    def _examples(self, step: int) -> list[Features]:
        if step not in self._read:
            epoch, place = divmod(step, self.per_epoch)
            if self._order[0] != epoch:
                self._order = (epoch, self._batches(epoch))
            self._read[step] = picked(self.features, self._order[1][place])
        return self._read[step]

    def reads(self) -> Sequence[Features]:
        """Return the examples that training reads; less than an epoch reads fewer."""
        if self.total >= self.per_epoch:
            return self.features
        epoch = self._batches(0)
        places = [i for place in range(self.total) for i in epoch[place]]
        if isinstance(self.features, Tokenized):  # steps may be many, and few methods read ahead
            return self.features.part(places)
        return picked(self.features, places)

    def _batches(self, epoch: int) -> Sequence[Sequence[int]]:
        size, drop_last, order = self.train.batch_size, self.train.drop_last, self.train.order
        return batches(self.features, size, self.seed, epoch, drop_last=drop_last, order_by=order)

    def keys(self, slots: Sequence[int]) -> Tensor:
        """Return dropout keys for rows of the next step's batch."""
        return row_keys(self.seed, self.step, slots)

    def _rate(self, before: int) -> float:
        taken = before - self.stepper.skipped
        return learning_rate(self.train, taken, self.total, self.per_epoch)

    def send(self, stop: Tensor) -> None:
        """Take an optimizer step before its loss is known; the device leaves it out if it stops."""
        if self.failed is None:
            self.stepper.step(self._rate(self.step), stop)
            self.step += 1

    def update(self, before: int, loss: float, norm: float, tokens: int) -> None:
        """Record the step after `before` others, or fail if its figures are not finite.

        A stepper that needs them takes the step here. In fp16 such a step is skipped first. As in
        DeepSpeed and PPT a skipped step counts, with its batch and its evaluation, but does not
        advance the learning rate.
        """
        if self.stepper.skips_on_device and self.step <= before:
            return  # memory ran out before it was sent, or it followed a step that failed
        rate = self._rate(before)
        event, figures = "step", {"loss": loss, "norm": norm, "lr": rate}
        if math.isfinite(loss) and math.isfinite(norm):
            if not self.stepper.skips_on_device:
                self.stepper.step(rate)
            self.health.step(loss)
        elif (why := self.stepper.skip()) is None:
            event, figures = "skipped", {"loss_scale": self.stepper.scale}
        else:
            self.step = before
            self._fail(f"loss {loss} and gradient norm {norm} at step {before + 1}{why}")
            return
        self.step = max(self.step, before + 1)
        self.tokens += tokens
        self.journal.log({"event": event, "step": before + 1, **figures})

    def _fail(self, reason: str) -> None:
        self.failed = reason
        self.journal.log({"event": "failed", "step": self.step + 1, "reason": reason})

    def judge(self, predictions: Sequence[Prediction], loss: float | None = None) -> None:
        """Score predictions on dev, and keep the learned tensors if they are the best so far.

        `loss` is the mean on dev, which `train.select=loss` selects by.
        """
        metrics = {**self.score(predictions), **({} if loss is None else {"loss": loss})}
        self.history.append({"step": self.step, **metrics})
        if self.total and (warning := self.health.judge(predictions)):
            _LOG.warning("step %d: %s", self.step, warning)
        epoch = self.step / max(1, self.per_epoch)
        self.journal.log({"event": "dev", "step": self.step, "epoch": epoch, **metrics})
        if self.metric not in metrics:  # no texts were written
            if not self.select_best:
                self.best, self.best_step = {}, self.step
            return
        if not math.isfinite(metrics[self.metric]):  # no later value compares as better
            self._fail(f"dev {self.metric} is {metrics[self.metric]} at step {self.step}")
            return
        ranked = self._ranked(metrics)
        progress = self._gains(ranked)
        self.stale = 0 if progress or not self.select_best else self.stale + 1
        if not self.select_best or self._keeps(ranked):
            self.best = {name: p.detach().clone() for name, p in self.learned.items()}
            self.best_step, self.best_value = self.step, metrics[self.metric]
            self.best_metrics = ranked

    def _ranked(self, metrics: Mapping[str, float]) -> Mapping[str, float]:
        """Return what evaluations are compared by; higher is better."""
        return {"loss": -metrics["loss"]} if self.by_loss else metrics

    def _gains(self, metrics: Mapping[str, float]) -> bool:
        """Return whether an evaluation improves on the best one, and so resets the patience."""
        if not self.best_metrics:
            return metrics[self.metric] > self.best_value
        if self.train.ties is Ties.last_goes_on:
            return self._keeps(metrics)
        return all(metrics[name] > self.best_metrics[name] for name in self._compared(metrics))

    def _keeps(self, metrics: Mapping[str, float]) -> bool:
        """Return whether an evaluation replaces the best one."""
        if not self.best_metrics or self.train.ties is Ties.first:
            return self._gains(metrics)
        return all(metrics[name] >= self.best_metrics[name] for name in self._compared(metrics))

    def _compared(self, metrics: Mapping[str, float]) -> list[str]:
        if self.train.ties is not Ties.last_in_all:
            return [self.metric]
        names = self.train.compared or list(metrics)
        if missing := sorted(set(names) - set(metrics)):
            raise UserError(
                f"train.compared has {missing[0]}, which the task does not compute; use "
                f"{', '.join(metrics)}."
            )
        return names

    def finish(self) -> None:
        """Load the selected tensors into the method."""
        with torch.no_grad():
            for name, tensor in self.best.items():
                self.learned[name].copy_(tensor)

    @property
    def late(self) -> bool:
        """Whether the last save is older than `SAVE_SECONDS`."""
        return time.monotonic() - self.saved_at > SAVE_SECONDS

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return everything the next step depends on: tensors, and plain data.

        `of` and `pace`, the steps in all and the seconds since a step, are for who looks on.
        """
        tensors = {f"learned.{name}": p.detach() for name, p in self.learned.items()}
        tensors |= {f"best.{name}": tensor for name, tensor in self.best.items()}
        moments, counts = self.stepper.state()
        plain = {
            **{name: getattr(self, name) for name in _COUNTS},
            "best_value": self.best_value if self.best else None,
            "token_budget": self.token_budget,
            "masks": RULE,
            "group": list(self.group),
            "seconds": self.seconds,
            "of": self.total,
            "alike": self.health.alike,
            "pace": [self._began[0], time.monotonic() - self._began[1]],
            **counts,
        }
        return tensors | moments, plain

    def resume(self) -> bool:
        """Restore the journal's saved state; refuse another run's. Return whether there is one."""
        if (saved := self.journal.restore()) is None:
            return False
        tensors, plain = saved
        try:
            if (rule := plain.get("masks", 1)) != RULE:  # 0.1.0 gave no number
                raise UserError(
                    f"the saved state goes on with dropout masks of rule {rule}, and this version "
                    f"draws those of rule {RULE}. Type the command with rerun=true to start anew."
                )
            for name in _COUNTS:
                setattr(self, name, plain[name])
            self.token_budget = plain.get("token_budget")
            self.health.losses.extend(plain.get("losses", ()))
            self.health.alike = plain.get("alike", 0)
            self.seconds = self.earlier = float(plain.get("seconds", 0.0))
            if plain["best_value"] is not None:
                self.best_value = plain["best_value"]
                row = next(r for r in self.history if r["step"] == self.best_step)
                self.best_metrics = self._ranked(row)
            with torch.no_grad():
                for name, parameter in self.learned.items():
                    parameter.copy_(tensors[f"learned.{name}"])
                    if f"best.{name}" in tensors:
                        self.best[name] = tensors[f"best.{name}"].to(parameter.device)
            self.stepper.resume(tensors, plain)
        except (*_MISFITS, RuntimeError) as error:
            if isinstance(error, RuntimeError) and of_device(error):
                raise
            raise UserError(
                f"the saved state does not fit this run ({type(error).__name__}: {error}). Type "
                "the command with rerun=true to start anew."
            ) from error
        self._began = self.step, time.monotonic()
        return True
