"""What to do when a step does not fit in memory: once more in halves, and the next time say so.

A step's batches, dropout keys and learning rate are functions of (seed, step), so a step that was
begun and dropped leaves nothing behind: done again in smaller micro-batches it has the gradient
that a run with the smaller budget has.
"""

import gc
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch

from ptrun.errors import UserError
from ptrun.training.member import Member
from ptrun.training.world import World

_LOG = logging.getLogger(__name__)
T = TypeVar("T")
_TEXTS = (
    "DefaultCPUAllocator: can't allocate memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)


class Engine(Protocol):
    """What is halved, and whose passes are done again.

    `largest` is the padded tokens of the largest micro-batch that was last cut.
    """

    device: str
    token_budget: int
    checkpointing: bool
    largest: int

    @property
    def world(self) -> World:
        """The processes of the run."""

    def _accumulate(self, members: Sequence[Member]) -> tuple[list[float], list[int]]: ...


@dataclass
class Guard:
    """Does the passes of a step, and those of one step of a process again, in halves."""

    engine: Engine
    halved: bool = False

    def resume(self, members: Sequence[Member]) -> None:
        """Go on with the token budget that the members were halved to before."""
        known = [member.token_budget for member in members if member.token_budget]
        self.engine.token_budget = min([self.engine.token_budget, *known])

    def accumulate(self, members: Sequence[Member]) -> tuple[list[float], list[int]]:
        """Add up the gradients of one step; return each member's mean loss and real tokens.

        Raises:
            UserError: memory ran out at the halved budget too; the members are saved.
        """
        done = attempt(lambda: self.engine._accumulate(members))
        if done is None:
            self._halve(members)
            done = attempt(lambda: self.engine._accumulate(members))
        if done is None:
            raise self._spent(members)
        return done

    def _halve(self, members: Sequence[Member]) -> None:
        shared = self.engine.world.size > 1  # ranks cut the same rows alike: none can halve alone
        if self.halved or shared:
            raise self._spent(members)
        self._let_go(members)
        old = self.engine.token_budget
        self.engine.token_budget = max(1, min(old, self.engine.largest) // 2)
        self.halved = True
        for member in members:
            member.token_budget = self.engine.token_budget
        _LOG.warning(
            "out of memory at step %d: micro-batches of %d tokens at most, not %d, from here on; "
            "a step still learns from the same examples",
            *(members[0].step + 1, self.engine.token_budget, old),
        )

    def _spent(self, members: Sequence[Member]) -> UserError:
        """Save the members as they were before the step, and return what to tell the user.

        Ranks save together, so one that is out of memory leaves what was saved last.
        """
        self._let_go(members)
        if self.engine.world.size == 1:
            for member in members:
                member.save()
        largest = min(self.engine.token_budget, self.engine.largest)
        ways = [] if self.engine.checkpointing else ["hardware.checkpointing=true"]
        ways += [f"hardware.population={len(members) // 2}"] if len(members) > 1 else []
        ways += [f"hardware.token_budget={max(1, largest // 2)}", "a shorter task.max_tokens"]
        return UserError(
            f"out of memory at step {members[0].step + 1}, with micro-batches of {largest} tokens;"
            f"\ntype {', '.join(ways)} or a shorter method.length.\nThe state is kept: where more "
            f"memory is free, the same command goes on from it."
        )

    def _let_go(self, members: Sequence[Member]) -> None:
        """Drop the gradients of a step that was begun, and what the allocator keeps."""
        for member in members:
            member.stepper.drop()
        gc.collect()
        if self.engine.device == "cuda":
            torch.cuda.empty_cache()


def attempt(work: Callable[[], T]) -> T | None:
    """Return what some work returns, or None if memory ran out, by then let go of.

    An exception holds the frames it came through, and they the activations: so it ends here.
    """
    try:
        return work()
    except RuntimeError as error:
        if not ran_out(error):
            raise
    return None


def ran_out(error: RuntimeError) -> bool:
    """Return whether an error says that no memory was left, on a device or on the host."""
    return isinstance(error, torch.OutOfMemoryError) or any(t in str(error) for t in _TEXTS)
