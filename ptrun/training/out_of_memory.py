"""What happens when a step does not fit in memory: one retry with half the tokens, then an error.

A step's batches, dropout keys and learning rate are functions of (seed, step). A retry in smaller
micro-batches therefore gets the gradient of a run with the smaller token budget.
"""

import gc
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from ptrun.errors import UserError
from ptrun.training.member import Member, save
from ptrun.training.passes import Passes

_LOG = logging.getLogger(__name__)
_TEXTS = (
    "DefaultCPUAllocator: can't allocate memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)
Sums = tuple[list[float], list[int]]
"""Each member's mean loss and real tokens in a step."""


@dataclass
class Guard:
    """Calls `run` for the passes of each step; halves the token budget once a process."""

    engine: Passes
    run: Callable[[Sequence[Member]], Sums]
    halved: bool = False

    def resume(self, members: Sequence[Member]) -> None:
        """Restore the token budget to which the members were halved before."""
        budgets = [member.token_budget for member in members if member.token_budget]
        self.engine.token_budget = min([self.engine.token_budget, *budgets])

    def accumulate(self, members: Sequence[Member]) -> Sums:
        """Add up the gradients of one step; return each member's mean loss and real tokens.

        Raises:
            UserError: memory ran out with the halved budget too; the members are saved.
        """
        sums = self._attempt(members)
        if sums is None:
            self._halve(members)
            sums = self._attempt(members)
        if sums is None:
            raise self._out_of_memory(members)
        return sums

    def _attempt(self, members: Sequence[Member]) -> Sums | None:
        """Run a step's passes; return None if memory ran out.

        The exception must end here: it holds frames, and they hold the activations.
        """
        try:
            return self.run(members)
        except RuntimeError as error:
            text = str(error)
            if not isinstance(error, torch.OutOfMemoryError) and all(t not in text for t in _TEXTS):
                raise
        return None

    def _halve(self, members: Sequence[Member]) -> None:
        if self.halved or self.engine.world.size > 1:  # ranks must cut the same rows alike
            raise self._out_of_memory(members)
        self._free(members)
        old = self.engine.token_budget
        self.engine.token_budget = max(1, min(old, self.engine.largest) // 2)
        self.halved = True
        for member in members:
            member.token_budget = self.engine.token_budget
        _LOG.warning(
            "out of memory at step %d: from here on micro-batches have %d tokens at most, not %d; "
            "a step still uses the same examples",
            *(members[0].step + 1, self.engine.token_budget, old),
        )

    def _out_of_memory(self, members: Sequence[Member]) -> UserError:
        """Save the members as they were before the step, and return the error to raise.

        Ranks save together, so one that is out of memory keeps its last save.
        """
        self._free(members)
        if self.engine.world.size == 1:
            save(members)
        largest = min(self.engine.token_budget, self.engine.largest)
        ways = [] if self.engine.checkpointing else ["hardware.checkpointing=true"]
        ways += [f"hardware.population={len(members) // 2}"] if len(members) > 1 else []
        ways += [f"hardware.token_budget={max(1, largest // 2)}", "a shorter task.max_tokens"]
        return UserError(
            f"out of memory at step {members[0].step + 1}, with micro-batches of {largest} tokens;"
            f"\ntype {', '.join(ways)} or a shorter method.length.\nThe state is saved: with more "
            f"free memory, the same command resumes from it."
        )

    def _free(self, members: Sequence[Member]) -> None:
        """Drop the gradients of an unfinished step, and empty the allocator's cache."""
        for member in members:
            member.stepper.drop()
        gc.collect()
        if self.engine.device == "cuda":
            torch.cuda.empty_cache()
