"""The run folder of several ranks: the first rank writes it.

The state of a tuned backbone has many gigabytes, so each rank saves its own part of it as
`state.step-<n>.rank-<r>-of-<m>.safetensors`. When all parts are saved, `state.safetensors` names
their step, and parts of other steps are removed.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from ptrun.config.compose import Composed
from ptrun.errors import UserError
from ptrun.folder import request
from ptrun.hardware.ranks import Ranks
from ptrun.runs.store import RunStore, read_tensors
from ptrun.types import Example, Prediction, RunResult


class SharedStore:
    """A `RunStore` for one of several ranks.

    Args:
        store: the run folder.
        world: the ranks.
        tuned: whether the backbone is tuned, so that each rank saves a part of the state.
    """

    def __init__(self, store: RunStore, world: Ranks, *, tuned: bool):
        self.store, self.world, self.tuned = store, world, tuned
        self.divided = tuned and world.size > 1
        self._layout = {"ranks": world.size, "model_parallel": world.model_parallel}

    def part(self, name: str) -> "SharedStore":
        """Return the store of one part of the run."""
        return SharedStore(self.store.part(name), self.world, tuned=self.tuned)

    def write_request(self, composed: Composed) -> None:
        """Write `run.yaml`, which `ptrun rerun` reads."""
        if self.world.main:
            request.write(self.store.folder, composed)

    def log(self, row: Mapping[str, Any]) -> None:
        """Append a row to `metrics.jsonl`."""
        if self.world.main:
            self.store.log(row)

    def draft(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> Callable[[], object]:
        """Write a state beside the saved one: the part of every rank, or the whole by the first.

        Return what replaces the saved one.
        """
        if not self.divided:
            return self.store.draft(tensors, meta) if self.world.main else lambda: None
        own = self._own_file(meta["step"])
        self.store.write_tensors(own, tensors, {})
        return partial(self._save_divided, own, meta)

    def _save_divided(self, own: Path, meta: Mapping[str, Any]) -> None:
        self.world.wait()
        if self.world.main:
            self.store.draft({}, {**meta, **self._layout})()
        self.world.wait()
        for file in own.parent.glob(self._own_file("*").name):
            if file != own:
                file.unlink()

    def restore(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return the saved state, or this rank's part of it.

        Raises:
            UserError: the state is damaged, or was divided among another number of ranks.
        """
        saved = self.world.broadcast(self.store.restore() if self.world.main else None)
        if saved is None or not self.tuned:
            return saved
        _, meta = saved
        layout = {key: meta.get(key, 1) for key in self._layout}
        if layout != self._layout:
            raise UserError(
                f"{self.store.folder}: saved by {layout['ranks']} ranks with hardware."
                f"model_parallel={layout['model_parallel']}. Start as many, or type rerun=true."
            )
        if not self.divided:
            return saved
        tensors, _ = read_tensors(self._own_file(meta["step"]), self.store.bound)
        return tensors, meta

    def write_prompt(
        self, tensors: Mapping[str, Tensor], method: Mapping[str, Any], task: Mapping[str, Any]
    ) -> None:
        """Write `prompt.safetensors`."""
        if self.world.main:
            self.store.write_prompt(tensors, method, task)

    def write_predictions(
        self, examples: Sequence[Example], predictions: Sequence[Prediction]
    ) -> None:
        """Write `predictions.jsonl`."""
        if self.world.main:
            self.store.write_predictions(examples, predictions)

    def close(self, outcome: RunResult, *, keep_state: bool = True) -> None:
        """Write the result; without `keep_state` a finished run loses its state."""
        if self.world.main:
            self.store.close(outcome)
        self.world.wait()
        if self.world.main and outcome.status == "finished" and not keep_state:
            for file in self.store.folder.glob("*state*.safetensors"):
                file.unlink()

    def interrupt(self) -> None:
        """Close the tracker of a run that has no result."""
        self.store.tracker.finish(None)

    def _own_file(self, step: int | str) -> Path:
        name = f"step-{step}.rank-{self.world.rank}-of-{self.world.size}.safetensors"
        return self.store.state_file.with_name(f"{self.store.state_file.stem}.{name}")
