"""The arithmetic of a run, and its time on a device of known speed that need not be here."""

from dataclasses import dataclass

import torch
from torch.utils.flop_counter import FlopCounterMode

from ptrun.planning.costs import method_of
from ptrun.planning.texts import Texts, steps
from ptrun.planning.trace import Case, loss_of, placed
from ptrun.runs.plan import Plan

_TERA = 1e12


@dataclass(frozen=True)
class Arithmetic:
    """Floating-point operations of one example: in a training step, and in a prediction."""

    step: int
    answer: int


def arithmetic(planned: Plan, length: int) -> Arithmetic:
    """Return the operations of a run's method on a text of `length` tokens.

    Products of matrices are counted, as torch's `FlopCounterMode` counts them, on the meta device.
    """
    method = method_of(planned)
    batch = placed(method, Case(1, length, torch.float32, autocast=False, checkpointing=False))
    with FlopCounterMode(display=False) as counter:
        loss = loss_of(method.backbone.forward(method.inputs(batch)))
        answer = counter.get_total_flops()
        if loss.requires_grad:
            torch.autograd.backward(loss)
        return Arithmetic(counter.get_total_flops(), answer)


def seconds(planned: Plan, found: Texts, tflops: float) -> float | None:
    """Return the seconds of a run at `tflops` TFLOP/s; None if the data are not known.

    Loading, tokenization and everything but products of matrices are left out, so `tflops` is what
    a device sustains in training, not its peak.
    """
    count = steps(planned, found)
    if count is None or found.dev is None or found.test is None:
        return None
    each = arithmetic(planned, found.mean)
    train = planned.train
    every = train.eval_every or -(-(found.train or 1) // train.batch_size)
    answers = found.dev * (count // max(1, every)) + found.test
    total = count * train.batch_size * each.step + answers * each.answer
    return total / (tflops * _TERA)
