"""What happens on the disguised device: waits, uploads, open orders; by part of a run and line."""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

CAPTURED = "captured"
"""The part of a run that a capture of a CUDA graph is."""
REPLAY = "replay"
"""A launch of a CUDA graph."""
PACKAGE = f"{Path(__file__).parents[2] / 'ptrun'}/"
WAIT = "wait"
"""The host needs a number of the device."""
UPLOAD = "pageable upload"
"""A copy from memory that is not pinned: CUDA waits until it is staged."""
ORDER = "open order"
"""An op of torch's list of non-deterministic ones, where the order of a sum matters."""
LIBRARY = "open algorithm"
"""A library's kernel whose last bits CUDA leaves open."""


@dataclass(frozen=True)
class Event:
    """One kind of event: in which part of a run, what it is, and the innermost line of ptrun."""

    part: str
    kind: str
    what: str
    line: str


@dataclass
class Events:
    """Counts events, and how often each part of a run was entered."""

    part: str = "other"
    seen: Counter[Event] = field(default_factory=Counter)
    entered: Counter[str] = field(default_factory=Counter)
    fail: dict[str, str] = field(default_factory=dict)
    """By part, the message of the CUDA error that its next op raises."""

    def note(self, kind: str, what: str) -> None:
        if kind == WAIT and self.part == CAPTURED:
            raise RuntimeError(f"{what}: operation not permitted when stream is capturing")
        self.seen[Event(self.part, kind, what, line())] += 1

    def count(self, kind: str, *parts: str) -> int:
        return sum(
            n for e, n in self.seen.items() if e.kind == kind and e.part in (parts or {e.part})
        )

    def clear(self) -> None:
        self.seen.clear()
        self.entered.clear()

    @contextmanager
    def within(self, part: str) -> Iterator[None]:
        before, self.part = self.part, part
        self.entered[part] += 1
        try:
            yield
        finally:
            self.part = before


EVENTS = Events()


def line() -> str:
    """Return the innermost line of ptrun on the stack, as `file:line`."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.startswith(PACKAGE):
            return f"{frame.f_code.co_filename.removeprefix(PACKAGE)}:{frame.f_lineno}"
        frame = frame.f_back
    return "backward pass"
