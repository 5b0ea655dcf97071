"""CUDA graphs of the disguised device: what is captured is recorded, and a replay computes it anew.

As on a GPU the memory of every result stays, and numbers that are not tensors are those of the
capture. A capture refuses what CUDA refuses, and copies from the host, whose source would change.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from tests.cuda.events import CAPTURED, EVENTS, REPLAY


class Graph:
    """A list of calls, each with the tensors that hold its results."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def replay(self) -> None:
        assert recording is None, "a graph is replayed within a capture"
        seen = EVENTS.seen.copy()  # what happens in a replay is known from its capture
        with _disable_current_modes(), torch.no_grad():
            for call in self.calls:
                call()
        EVENTS.seen = seen
        EVENTS.note(REPLAY, "graph")


recording: Graph | None = None


@contextmanager
def capture(graph: Graph, pool: Any = None) -> Iterator[None]:
    global recording
    assert recording is None and not graph.calls
    recording = graph
    try:
        with EVENTS.within(CAPTURED):
            yield
    finally:
        recording = None


def record(func: Any, call: Callable[..., Any], args: Any, kwargs: Any, result: Any) -> None:
    """Note a call on the tensors that hold the device's numbers."""
    if recording is None:
        return
    if torch.Tag.nondeterministic_seeded in func.tags:
        raise RuntimeError(f"{func}: random numbers of torch in a capture")
    if func.is_view:
        return
    results = [t for t in _flat(result) if isinstance(t, Tensor)]
    inputs = {id(t) for t in _flat((args, list(kwargs.values())))}
    places = [None if id(t) in inputs else t for t in results]

    def again() -> None:
        for place, fresh in zip(places, _flat(call(*args, **kwargs)), strict=True):
            if place is not None:
                place.copy_(fresh)

    recording.calls.append(again)


def recorded(launch: Callable[..., None]) -> Callable[..., None]:
    """Return a launch of a program of ptrun's own that a capture notes."""

    def launched(*args: Any, **kwargs: Any) -> None:
        launch(*args, **kwargs)
        if recording is not None:
            recording.calls.append(lambda: launch(*args, **kwargs))

    return launched


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for part in value:
            yield from _flat(part)
    elif value is not None:
        yield value


def install() -> None:
    torch.cuda.CUDAGraph = Graph  # type: ignore[misc,assignment]
    torch.cuda.graph = capture  # type: ignore[misc,assignment]
    torch.cuda.graph_pool_handle = lambda: (0, 0)
