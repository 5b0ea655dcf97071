"""The ranks of one checkpoint side by side: checked against each other, joined tensor by tensor."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ptrun.errors import UserError
from ptrun.importing.layout import ALIASES, EMBEDDINGS, PROMPT, Target
from ptrun.importing.rank_files import find_files, is_mapped, open_file
from ptrun.importing.sizes import Sizes, read_sizes

_REOPEN_BYTES = 2**27  # pages that were read count as memory until the mapping is dropped
_SAME = ("iteration", "global_steps", "mp_world_size")


class Shards:
    """A checkpoint of one or more ranks.

    Args:
        source: the folder with `latest_checkpointed_iteration.txt`, or with the mp_rank files.

    Raises:
        UserError: files are missing, damaged, or do not belong together.
    """

    def __init__(self, source: Path):
        self.files = find_files(source)
        self._mapped = all(is_mapped(file) for file in self.files)
        self._open()
        first = self._ranks[0]
        self.shapes = {name: tuple(tensor.shape) for name, tensor in first.items()}
        self.dtypes = {name: tensor.dtype for name, tensor in first.items()}
        self._check_shapes()
        self.sizes: Sizes = read_sizes(self.shapes, len(self.files))

    def check(self, targets: Sequence[Target]) -> None:
        """Compare the shards with what the model needs.

        Raises:
            UserError: tensors are missing, unknown or of another size, or differ where all ranks
                should hold the same.
        """
        if self.sizes.inner % self.sizes.heads:
            raise UserError(f"{self.sizes.heads} heads do not share {self.sizes.inner} columns.")
        self._check_names({target.source for target in targets} | {EMBEDDINGS, *ALIASES})
        for target in targets:
            self._check_size(target)
            if target.axis is None:
                self._check_equal(target.source)
        self._check_aliases()
        if self.has_prompt:
            self._check_equal(PROMPT)

    @property
    def has_prompt(self) -> bool:
        """Whether a soft prompt was trained and is in the shards."""
        return PROMPT in self.shapes

    def prompt(self) -> Tensor:
        """Return the soft prompt, `[P, d_model]`."""
        return self._parts(PROMPT)[0]

    def join(self, target: Target) -> Tensor:
        """Return a tensor of the model from all ranks."""
        parts = self._parts(target.source)
        if target.axis is None:
            return parts[0]
        mine = [part.chunk(target.pieces)[target.piece] for part in parts]
        return mine[0] if len(mine) == 1 else torch.cat(mine, dim=target.axis)

    def _open(self) -> None:
        held = [open_file(file) for file in self.files]
        self._check_bookkeeping(held)
        self._ranks: list[dict[str, Tensor]] = [one["module"] for one in held]
        self._read = 0

    def _parts(self, name: str) -> list[Tensor]:
        """Return each rank's tensor, dropping earlier mappings now and then."""
        if self._read > _REOPEN_BYTES and self._mapped:
            self._ranks = []
            self._open()
        parts = [rank[name] for rank in self._ranks]
        self._read += sum(part.nbytes for part in parts)
        return parts

    def _check_bookkeeping(self, held: Sequence[dict[str, Any]]) -> None:
        for key in _SAME:
            values = [one[key] for one in held if key in one]
            if any(value != values[0] for value in values):
                raise UserError(
                    f"the ranks differ in {key}: {values}; they are of different saves."
                )
        expected = held[0].get("mp_world_size", len(held))
        if expected != len(held):
            raise UserError(
                f"{self.files[0].parent}: {len(held)} ranks, but they were saved as {expected}."
            )

    def _check_shapes(self) -> None:
        for rank, tensors in enumerate(self._ranks):
            for name in self.shapes.keys() ^ tensors.keys():
                raise UserError(f"{name} is in one of the ranks 0 and {rank}, not in both.")
            for name, tensor in tensors.items():
                mine, first = (tensor.dtype, tuple(tensor.shape)), self._kind(name)
                if mine != first:
                    raise UserError(f"{name}: rank 0 holds {first}, rank {rank} {mine}.")

    def _kind(self, name: str) -> tuple[torch.dtype, tuple[int, ...]]:
        return self.dtypes[name], self.shapes[name]

    def _check_names(self, needed: set[str]) -> None:
        found = self.shapes.keys() - {PROMPT}
        for problem, names in {"missing": needed - found, "unknown": found - needed}.items():
            if names:
                shown = ", ".join(sorted(names)[:3])
                raise UserError(f"the shards do not fit T5: {len(names)} {problem}, e.g. {shown}.")

    def _check_size(self, target: Target) -> None:
        expected = list(self.sizes.shape(target.shape))
        expected[0] *= target.pieces
        found = list(self.shapes[target.source])
        if target.axis is not None and len(found) == len(expected):
            found[target.axis] *= len(self.files)
        if found != expected:
            raise UserError(f"{target.source}: {found} over all ranks; expected {expected}.")

    def _check_equal(self, name: str) -> None:
        parts = self._parts(name)
        if other := [r for r, part in enumerate(parts) if not torch.equal(part, parts[0])]:
            raise UserError(
                f"{name} should be the same on all ranks; ranks {other} differ from rank 0."
            )

    def _check_aliases(self) -> None:
        for alias in ALIASES:
            pairs = zip(self._parts(alias), self._parts(EMBEDDINGS), strict=True)
            for rank, (one, other) in enumerate(pairs):
                if not torch.equal(one, other):
                    raise UserError(f"{alias} and {EMBEDDINGS} differ on rank {rank}.")
