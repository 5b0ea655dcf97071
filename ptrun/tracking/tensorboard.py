"""TensorBoard: event files below the run folder."""

from collections.abc import Mapping
from typing import Any

from ptrun.tracking.trackers import OneTracker, Tracked, final
from ptrun.types import RunResult

OPTIONS = ()


def opened(run: Tracked) -> OneTracker:
    """Return a writer of event files."""
    from torch.utils.tensorboard import SummaryWriter

    return _TensorBoard(SummaryWriter(run.folder / "tensorboard"))  # type: ignore[no-untyped-call]


class _TensorBoard:
    def __init__(self, writer: Any):
        self.writer, self.last = writer, 0

    def log(self, numbers: Mapping[str, float], step: int | None) -> None:
        self.last = self.last if step is None else step
        for name, value in numbers.items():
            self.writer.add_scalar(name, value, self.last)

    def finish(self, result: RunResult | None) -> None:
        self.log(final(result) if result else {}, None)
        self.writer.close()
