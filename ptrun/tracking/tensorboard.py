"""TensorBoard: event files below the run folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ptrun.tracking.trackers import final
from ptrun.types import RunResult


class _TensorBoard:
    """A writer of event files."""

    def __init__(self, folder: Path, run_id: str, config: Mapping[str, Any]):
        self.folder, self.last = folder / "tensorboard", 0

    def open(self) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(self.folder)  # type: ignore[no-untyped-call]

    def log(self, numbers: Mapping[str, float], step: int | None) -> None:
        self.last = self.last if step is None else step
        for name, value in numbers.items():
            self.writer.add_scalar(name, value, self.last)  # type: ignore[no-untyped-call]

    def finish(self, result: RunResult | None) -> None:
        self.log(final(result), None)
        self.writer.close()  # type: ignore[no-untyped-call]


TRACKER = _TensorBoard
