"""The run folder of several ranks: the first rank writes it.

The state of a tuned backbone has many gigabytes, so each rank saves its own part of it as
`state.step-<n>.rank-<r>-of-<m>.safetensors`. When all parts are saved, `state.safetensors` names
their step, and parts of other steps are removed.
"""

import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from ptrun.errors import UserError
from ptrun.files import drafted, opened
from ptrun.folder.store import RunStore, read_tensors
from ptrun.hardware.ranks import Ranks
from ptrun.types import RunResult, Tracker


class SharedStore(RunStore):
    """The run folder of one of several ranks, of which the first writes.

    Args:
        folder, bound, tracker, part: as of `RunStore`.
        world: the ranks.
        tuned: whether the backbone is tuned, so that each rank saves a part of the state.
    """

    def __init__(
        self,
        folder: Path,
        bound: Mapping[str, str],
        tracker: Tracker,
        part: str = "",
        *,
        world: Ranks,
        tuned: bool,
    ):
        super().__init__(folder, bound, tracker, part, main=world.main)
        self.world, self.tuned = world, tuned
        self.divided = tuned and world.size > 1
        self._layout = {"ranks": world.size, "model_parallel": world.model_parallel}

    def part(self, name: str) -> "SharedStore":
        """Return the store of one part of the run."""
        place = self.folder, self.bound, self.tracker, name
        return SharedStore(*place, world=self.world, tuned=self.tuned)

    def draft(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> Callable[[], object]:
        """Write a state beside the saved one: the part of every rank, or the whole by the first.

        Return what replaces the saved one.
        """
        if not self.divided:
            return super().draft(tensors, meta) if self.main else lambda: None
        file = self._rank_file(meta["step"])
        self.write_tensors(file, tensors, {})
        return partial(self._save_divided, file, meta)

    def _save_divided(self, rank_file: Path, meta: Mapping[str, Any]) -> None:
        self.world.wait()
        if self.main:
            super().draft({}, {**meta, **self._layout})()
        self.world.wait()
        for file in rank_file.parent.glob(self._rank_file("*").name):
            if file != rank_file:
                file.unlink()

    def follow(self, folder: Path) -> None:
        """Begin with the states and the journal of a run that is not changed."""
        states = sorted(folder.glob("*state*.safetensors"))
        for file in [folder / self._metrics.name, *states]:
            with opened(file) as source, drafted(self.folder / file.name) as target:
                shutil.copyfileobj(source, target)

    def restore(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return the saved state, or this rank's part of it.

        Raises:
            UserError: the state is damaged, or was divided among another number of ranks.
        """
        saved = self.world.broadcast(super().restore() if self.main else None)
        if saved is None or not self.tuned:
            return saved
        _, meta = saved
        layout = {key: meta.get(key, 1) for key in self._layout}
        if layout != self._layout:
            raise UserError(
                f"{self.folder}: saved by {layout['ranks']} ranks with hardware."
                f"model_parallel={layout['model_parallel']}. Start as many, or type rerun=true."
            )
        if not self.divided:
            return saved
        tensors, _ = read_tensors(self._rank_file(meta["step"]), self.bound)
        return tensors, meta

    def close(self, outcome: RunResult, *, keep_state: bool = True) -> None:
        """Write the result; without `keep_state` a finished run loses its state."""
        super().close(outcome)
        self.world.wait()
        if self.main and outcome.status == "finished" and not keep_state:
            for file in self.folder.glob("*state*.safetensors"):
                file.unlink()

    def _rank_file(self, step: int | str) -> Path:
        name = f"step-{step}.rank-{self.world.rank}-of-{self.world.size}.safetensors"
        return self.state_file.with_name(f"{self.state_file.stem}.{name}")
