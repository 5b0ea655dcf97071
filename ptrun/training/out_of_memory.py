"""What happens when memory runs out: passes are run again with half the tokens, then an error.

A step's batches, dropout keys and learning rate are functions of (seed, step). A retry in smaller
micro-batches therefore gets the gradient of a run with the smaller token budget.
"""

import gc
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from ptrun.errors import MemoryRanOut
from ptrun.training.member import Member, save

_LOG = logging.getLogger(__name__)
_TEXTS = (
    "DefaultCPUAllocator: can't allocate memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)
_RESUMES = "With more free memory, the same command resumes from the last save."
T = TypeVar("T")


def is_out_of_memory(error: RuntimeError) -> bool:
    """Return whether a device had no memory left."""
    return isinstance(error, torch.OutOfMemoryError) or any(t in str(error) for t in _TEXTS)


@dataclass
class MemoryGuard:
    """Calls what may run out of memory; halves the token budget once a process.

    `members` are those in training, which an error saves.
    """

    engine: Any  # a `Loop`, whose module imports this one
    members: Sequence[Member] = ()
    halved: bool = field(default=False, init=False)

    def resume(self, members: Sequence[Member]) -> None:
        """Restore the token budget to which the members were halved before."""
        budgets = [member.token_budget for member in members if member.token_budget]
        self.engine.token_budget = min([self.engine.token_budget, *budgets])

    def passes(self, run: Callable[[], T], doing: str = "") -> T:
        """Return the value of passes: of a training step, or of what `doing` names.

        If memory runs out with the halved budget too, a step's members are saved: `MemoryRanOut`.
        """
        value = self._attempt(run)
        if not value and not self.halved and self.engine.world.size == 1:  # ranks must cut alike
            self._free()
            old = self.engine.token_budget
            self.engine.token_budget = max(1, min(old, self.engine.largest) // 2)
            self.halved = True
            for member in self.members:
                member.token_budget = self.engine.token_budget
            _LOG.warning(
                "out of memory %s: from here on micro-batches have %d tokens at most, not %d; "
                "a step still uses the same examples",
                *(self._place(doing), self.engine.token_budget, old),
            )
            value = self._attempt(run)
        if not value:
            raise self._refused(doing)
        return value[0]

    def step(self, member: Member, run: Callable[[], None]) -> None:
        """Take a member's optimizer step; save the members if its moments have no memory."""
        if self._attempt(run):
            return
        self._free()
        state, count = self._saved(), sum(p.numel() for p in member.learned.values())
        fewer = f"hardware.population={len(self.members) // 2}, " if len(self.members) > 1 else ""
        raise MemoryRanOut(
            f"out of memory at step {member.step + 1}, in the optimizer: the moments of "
            f"{count:,} learned numbers need {8 * count / 2**30:.2f} GiB;"
            f"\ntype {fewer}hardware=zero1 on several GPUs, or a method that learns less.\n{state}"
        )

    def _attempt(self, run: Callable[[], T]) -> tuple[T] | None:
        """Return the value in a tuple; None if memory ran out."""
        try:
            return (run(),)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        return None  # the error ended above: its frames hold the activations

    def _refused(self, doing: str) -> MemoryRanOut:
        """Return the error for passes that do not fit; an evaluation keeps the last save."""
        self._free()
        state = _RESUMES if doing else self._saved()
        largest = max(1, min(self.engine.token_budget, self.engine.largest))
        ways = [] if self.engine.checkpointing else ["hardware.checkpointing=true"]
        count = len(self.members)
        ways += [f"hardware.population={count // 2}"] if count > 1 else []
        ways += [f"hardware.token_budget={max(1, largest // 2)}", "a shorter task.max_tokens"]
        return MemoryRanOut(
            f"out of memory {self._place(doing)}, with micro-batches of {largest} tokens;"
            f"\ntype {', '.join(ways)} or a shorter method.length.\n{state}"
        )

    def _place(self, doing: str) -> str:
        return f"in {doing}" if doing else f"at step {self.members[0].step + 1}"

    def _saved(self) -> str:
        """Save the members as they were before the step, and say so; ranks save together."""
        if self.engine.world.size > 1:
            return _RESUMES
        save(self.members)
        return "The state is saved: with more free memory, the same command resumes from it."

    def _free(self) -> None:
        """Read the steps before, drop the gradients of this one, empty the allocator's cache."""
        self.engine.settle()
        for member in self.members:
            member.stepper.drop()
        if self.engine.graphs is not None:
            self.engine.graphs.clear()
        gc.collect()
        if self.engine.device == "cuda":
            torch.cuda.empty_cache()
