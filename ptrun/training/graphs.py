"""Passes that a GPU replays: the inputs of members, the backbone and its backward pass as graphs.

A pass through a small model is hundreds of launches, and the host needs longer for them than the
device for the work. A pass of a size that was seen before is captured once, as one CUDA graph
forward and one backward, and then replayed over new tokens: two launches. Losses, heads and the
optimizer stay outside. What a capture refuses runs as before, with one line that says why.
"""

import logging
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ptrun.backbone.base import BackboneOutput
from ptrun.method.base import Method

_LOG = logging.getLogger(__name__)
MOST = 6
"""Sizes that are captured of training, and of evaluation; passes of others run as before."""
SEEN = 2
"""The pass of a size at which it is captured."""

Forward = Callable[[Tensor], Sequence[BackboneOutput]]
"""Returns the outputs of members from the bytes of their batches."""
Key = tuple[bool, tuple[Method, ...], Hashable]
"""Whether gradients are needed, the methods of all members, and the size of a pass."""


@dataclass
class Graph:
    """A captured pass: it reads `content`, and leaves its outputs in tensors that stay.

    Args:
        content: the bytes of the batches.
        outputs: of each member.
        forward: what is replayed.
        slopes: gradients of the outputs that have one, which the backward pass reads.
        learned, grads: the parameters that get a gradient, and their gradients.
        backward: what is replayed; None in an evaluation.
    """

    content: Tensor
    outputs: Sequence[BackboneOutput]
    forward: Any
    slopes: Sequence[Tensor] = ()
    learned: Sequence[nn.Parameter] = ()
    grads: Sequence[Tensor] = ()
    backward: Any = None


@dataclass
class Graphs:
    """The graphs of one backbone, and counts of what was replayed.

    Args:
        replayed, others: numbers of passes, replayed and run as before.
        reason: why passes are not captured; None if nothing prevents it.
    """

    replayed: int = 0
    others: int = 0
    reason: str | None = None
    _held: dict[Key, Graph] = field(default_factory=dict)
    _seen: Counter[Key] = field(default_factory=Counter)
    _pool: Any = None

    def record(self) -> dict[str, Any]:
        """Return the counts, and why nothing is captured if that is so."""
        counts = {"replayed": self.replayed, "not_replayed": self.others}
        return counts if self.reason is None else {**counts, "reason": self.reason}

    def clear(self) -> None:
        """Drop all graphs with their memory: the methods may change now."""
        self._held, self._seen, self._pool = {}, Counter(), None

    def run(
        self, methods: Sequence[Method], size: Hashable, content: Tensor, forward: Forward
    ) -> Sequence[BackboneOutput]:
        """Return the outputs of a pass, replayed if it is captured or can be.

        `methods` are those of all members in training, or in an evaluation. `size` says which have
        batches, and their sizes; passes of one size differ in `content`, their bytes, alone.
        """
        trains = torch.is_grad_enabled()
        if trains and any(key[0] and key[1] != tuple(methods) for key in self._seen):
            self.clear()  # a member has ended: the others take other passes from here on
        key = trains, tuple(methods), size
        self._seen[key] += 1
        alike = sum(held[0] == trains for held in self._held)
        new = self.reason is None and key not in self._held
        if new and self._seen[key] >= SEEN and alike < MOST:
            learned = [p for method in methods for p in method.learned().values()]
            try:
                self._held[key] = self._captured(content.clone(), learned, forward)
            except Exception as failed:  # torch, Triton and the driver share no error class
                self.reason = " ".join(str(failed).split())[:160] or type(failed).__name__
                _LOG.warning("passes are not captured on this device: %s", self.reason)
        graph = self._held.get(key)
        if graph is None:
            self.others += 1
            return forward(content)
        self.replayed += 1
        graph.content.copy_(content)
        if graph.backward is None:
            graph.forward.replay()
            return graph.outputs
        tensors = iter(_replayed(graph, *graph.learned))
        return [out.map(lambda t: next(tensors) if t.requires_grad else t) for out in graph.outputs]

    def _captured(
        self, content: Tensor, learned: Sequence[nn.Parameter], forward: Forward
    ) -> Graph:
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        aside: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):  # libraries allocate what they need at the first pass
            tensors = _slopable(forward(content))
            slopes = [torch.zeros_like(tensor) for tensor in tensors]
            used = [
                parameter
                for parameter, slope in zip(learned, _grad(tensors, learned, slopes), strict=True)
                if slope is not None
            ]
        torch.cuda.current_stream().wait_stream(aside)
        ahead, back = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(ahead, pool=self._pool):
            outputs = forward(content)
        if not used:
            return Graph(content, outputs, ahead)
        with torch.cuda.graph(back, pool=self._pool):
            grads = [grad.contiguous() for grad in _grad(_slopable(outputs), used, slopes)]
        return Graph(content, outputs, ahead, slopes, used, grads, back)


def _grad(
    tensors: Sequence[Tensor], learned: Sequence[nn.Parameter], slopes: Sequence[Tensor]
) -> Sequence[Any]:
    """Return the gradients of parameters; None where no tensor depends on one."""
    if not tensors or not learned:
        return [None] * len(learned)
    return torch.autograd.grad(tensors, learned, slopes, allow_unused=True)


def _slopable(outputs: Sequence[BackboneOutput]) -> list[Tensor]:
    """Return the tensors of outputs that have a gradient, in their order."""
    return [tensor for out in outputs for tensor in out.tensors if tensor.requires_grad]


class _Replayed(torch.autograd.Function):
    """A pass whose backward pass leaves the gradients of parameters where the graph has them."""

    @staticmethod
    def forward(ctx: Any, graph: Graph, *_: Tensor) -> Any:
        ctx.graph = graph
        graph.forward.replay()
        return tuple(tensor.detach() for tensor in _slopable(graph.outputs))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        graph = ctx.graph
        for slope, gradient in zip(graph.slopes, gradients, strict=True):
            slope.zero_() if gradient is None else slope.copy_(gradient)
        for parameter, grad in zip(graph.learned, graph.grads, strict=True):
            if parameter.grad is grad:  # of another part of the step, which was replayed too
                parameter.grad = grad.clone()
        graph.backward.replay()
        for parameter, grad in zip(graph.learned, graph.grads, strict=True):
            parameter.grad = grad if parameter.grad is None else parameter.grad.add_(grad)
        return None, *[None] * len(graph.learned)


_replayed: Any = _Replayed.apply
