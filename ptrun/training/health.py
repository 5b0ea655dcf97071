"""Signs in training that a run does not learn, each with a remedy."""

import math
from array import array
from collections.abc import Iterable, Sequence
from statistics import fmean, median
from typing import Any

from ptrun.types import Prediction

_LEAST_STEPS = 40  # below, the loss of a tenth of the steps is noise
_IN_A_ROW = 3  # evaluations with one answer
_LEAST_ANSWERS = 10
_MOVED = 0.02  # of the loss at the start
_SMALL = 0.05  # a loss at the start below this has little left to lose
_ROSE = 2.0  # times the loss at the start
_VANISHED = 1e-8


class Health:
    """Watches the losses, gradient norms and dev answers of one member.

    It is not saved: a resumed member knows its own part alone, and says nothing about the loss.
    A relation of facts may have one right answer: `compares` is then false.
    """

    compares = True

    def __init__(self) -> None:
        self.losses, self.norms = array("d"), array("d")
        self._alike = 0
        self._said = False

    def step(self, loss: float, norm: float) -> None:
        """Record a step that was taken."""
        self.losses.append(loss)
        self.norms.append(norm)

    def judge(self, predictions: Sequence[Prediction]) -> str | None:
        """Record the dev answers of an evaluation; return a warning at the third of one answer."""
        self._alike = self._alike + 1 if self.compares and one_answer(predictions) else 0
        if self._alike != _IN_A_ROW or self._said:
            return None
        self._said = True
        return f"all dev answers were the same in {_IN_A_ROW} evaluations; {_REMEDY}"

    def findings(self, steps: int) -> list[str]:
        """Return the warnings at the end of `steps` steps."""
        found = [f"the last dev answers are all the same; {_REMEDY}"] if self._alike else []
        if steps != len(self.losses) or steps < _LEAST_STEPS:
            return found
        return found + [text for text in (_loss(self.losses), _gradients(self.norms)) if text]


_REMEDY = "try another train.lr, more steps, or another seed, and look at ptrun check"


def one_answer(predictions: Sequence[Prediction]) -> bool:
    """Return whether at least ten predictions all have one value; tags are compared one by one."""
    return len(predictions) >= _LEAST_ANSWERS and len(set(_values(predictions))) == 1


def _values(predictions: Sequence[Prediction]) -> Iterable[str]:
    for one in predictions:
        value: Any = one.value
        yield from map(repr, value) if isinstance(value, list) else [repr(value)]


def _loss(losses: Sequence[float]) -> str | None:
    """Return a warning if the loss rose or did not move."""
    size = len(losses) // 10
    begin, first, last = losses[0], fmean(losses[:size]), fmean(losses[-size:])
    if last > _ROSE * begin and last > _SMALL:
        return f"the loss rose from {begin:.4g} to {last:.4g}; try a lower train.lr"
    if abs(first - last) < _MOVED * first and first > _SMALL:
        told = f"from {first:.4g} in the first tenth of the steps to {last:.4g} in the last"
        return f"the loss hardly moved, {told}; try a higher train.lr or more steps"
    return None


def _gradients(norms: Sequence[float]) -> str | None:
    middle = median(norms)
    if math.isfinite(middle) and middle > _VANISHED:
        return None
    return f"the gradients vanish: their median norm is {middle:.3g}; try another start= or method"
