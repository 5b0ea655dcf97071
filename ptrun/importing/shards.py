"""The parts of one checkpoint side by side: checked against each other, joined tensor by tensor."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from ptrun.errors import UserError
from ptrun.importing.target import Target

_REOPEN_BYTES = 2**27  # pages that were read count as memory until the mapping is dropped


class Files(Protocol):
    """The files of a checkpoint.

    `word` is what messages call a part, `mapped` says whether tensors are read when used only.
    """

    word: str
    mapped: bool

    def open(self) -> Sequence[Mapping[str, Tensor]]:
        """Return the tensors of each part."""


class Shards:
    """A checkpoint of one or more parts.

    Raises:
        UserError: the files are damaged or do not belong together.
    """

    def __init__(self, files: Files):
        self._files = files
        self._parts: Sequence[Mapping[str, Tensor]] = files.open()
        self._read = 0
        first = self._parts[0]
        self.count = len(self._parts)
        self.shapes = {name: tuple(tensor.shape) for name, tensor in first.items()}
        self.dtypes = {name: tensor.dtype for name, tensor in first.items()}
        self._check_shapes()

    def check(
        self,
        targets: Sequence[Target],
        *,
        model: str,
        aliases: Mapping[str, str] | None = None,
        spare: Collection[str] = (),
    ) -> None:
        """Compare the checkpoint with what the model needs.

        Args:
            targets: its tensors.
            model: its name, for messages.
            aliases: second names of tensors, with the first; both must hold the same.
            spare: names that may be there besides.

        Raises:
            UserError: tensors are missing, unknown or of another size, or differ where all parts
                should hold the same.
        """
        aliases = aliases or {}
        needed = {target.source for target in targets} | {*aliases, *aliases.values()}
        self._check_names(needed, model, spare)
        for target in targets:
            self._check_size(target)
            if target.axis is None:
                self.check_equal(target.source)
        self._check_aliases(aliases)

    def check_equal(self, name: str) -> None:
        """Make sure that all parts hold the same tensor.

        Raises:
            UserError: they do not.
        """
        parts = self.read(name)
        if other := [i for i, part in enumerate(parts) if not torch.equal(part, parts[0])]:
            word = self._files.word
            raise UserError(
                f"{name} should be the same on all {word}s; {word}s {other} differ from {word} 0."
            )

    def join(self, target: Target) -> Tensor:
        """Return a tensor of the model from all parts."""
        parts = self.read(target.source)
        if target.axis is None:
            whole = parts[0]
        else:
            cut = [part.chunk(target.pieces) for part in parts]
            wanted = range(target.pieces) if target.piece is None else [target.piece]
            mine = [pieces[i] for i in wanted for pieces in cut]
            whole = mine[0] if len(mine) == 1 else torch.cat(mine, dim=target.axis)
        return (whole.T if target.transposed else whole).detach()

    def read(self, name: str) -> list[Tensor]:
        """Return each part's tensor, dropping earlier mappings now and then."""
        if self._read > _REOPEN_BYTES and self._files.mapped:
            self._parts = []  # before the next is mapped
            self._parts, self._read = self._files.open(), 0
        parts = [part[name] for part in self._parts]
        self._read += sum(part.nbytes for part in parts)
        return parts

    def _check_shapes(self) -> None:
        word = self._files.word
        for i, tensors in enumerate(self._parts):
            for name in sorted(self.shapes.keys() ^ tensors.keys()):
                raise UserError(f"{name} is in one of the {word}s 0 and {i}, not in both.")
            for name, tensor in tensors.items():
                mine, first = (tensor.dtype, tuple(tensor.shape)), self._kind(name)
                if mine != first:
                    raise UserError(f"{name}: {word} 0 holds {first}, {word} {i} {mine}.")

    def _kind(self, name: str) -> tuple[torch.dtype, tuple[int, ...]]:
        return self.dtypes[name], self.shapes[name]

    def _check_names(self, needed: set[str], model: str, spare: Iterable[str]) -> None:
        found = self.shapes.keys() - {*spare}
        for problem, names in {"missing": needed - found, "unknown": found - needed}.items():
            if names:
                shown = ", ".join(sorted(names)[:3])
                raise UserError(
                    f"the checkpoint does not fit {model}: {len(names)} {problem}, e.g. {shown}."
                )

    def _check_size(self, target: Target) -> None:
        expected, found = list(target.held), list(self.shapes[target.source])
        uneven = found[0] % target.pieces if found else 0
        if target.axis is not None and len(found) == len(expected):
            found[target.axis] *= self.count
        if found != expected:
            raise UserError(
                f"{target.source}: {found} over all {self._files.word}s; expected {expected}."
            )
        if uneven:
            raise UserError(
                f"{target.source}: rows of one {self._files.word} do not make {target.pieces} "
                f"equal pieces; {self.count} {self._files.word}s cannot share {expected}."
            )

    def _check_aliases(self, aliases: Mapping[str, str]) -> None:
        for alias, name in aliases.items():
            pairs = zip(self.read(alias), self.read(name), strict=True)
            for i, (one, other) in enumerate(pairs):
                if not torch.equal(one, other):
                    raise UserError(
                        f"{alias} and {name} differ on {self._files.word} {i}; the model has one "
                        "tensor for both."
                    )
