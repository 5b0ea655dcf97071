"""The parts of one checkpoint: checked against each other, joined tensor by tensor."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from ptrun.converting.target import Target
from ptrun.errors import UserError

_REOPEN_BYTES = 2**27  # pages read from a mapping count as memory until it is dropped


class Files(Protocol):
    """The files of a checkpoint.

    `word` is the name of a part in messages. The files are memory-mapped.
    """

    word: str

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
        """Compare the checkpoint with the tensors of a model.

        Args:
            targets: the tensors.
            model: the model's name, for messages.
            aliases: second names of tensors, mapped to the first; both must hold the same values.
            spare: names of further tensors that the checkpoint may hold.

        Raises:
            UserError: tensors are missing, unknown or of another size, or differ between parts
                that should hold the same values.
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
        """Raise a UserError if the parts hold different values of a tensor."""
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
            chosen = [pieces[i] for i in wanted for pieces in cut]
            whole = chosen[0] if len(chosen) == 1 else torch.cat(chosen, dim=target.axis)
        return (whole.T if target.transposed else whole).detach()

    def read(self, name: str) -> list[Tensor]:
        """Return the tensor of each part; drop earlier mappings after `_REOPEN_BYTES`."""
        if self._read > _REOPEN_BYTES:
            self._parts = []  # drop these before the next are mapped
            self._parts, self._read = self._files.open(), 0
        parts = [part[name] for part in self._parts]
        self._read += sum(part.nbytes for part in parts)
        return parts

    def _check_shapes(self) -> None:
        word = self._files.word
        for i, tensors in enumerate(self._parts):
            for name in sorted(self.shapes.keys() ^ tensors.keys()):
                raise UserError(f"{name} is in only one of {word}s 0 and {i}; expected it in both.")
            for name, tensor in tensors.items():
                first = self.dtypes[name], self.shapes[name]
                other = tensor.dtype, tuple(tensor.shape)
                if other != first:
                    raise UserError(f"{name}: {word} 0 holds {first}, but {word} {i} {other}.")

    def _check_names(self, needed: set[str], model: str, spare: Iterable[str]) -> None:
        saved = self.shapes.keys() - {*spare}
        for problem, names in {"missing": needed - saved, "unknown": saved - needed}.items():
            if names:
                shown = ", ".join(sorted(names)[:3])
                raise UserError(
                    f"the checkpoint does not fit {model}: {len(names)} {problem}, e.g. {shown}."
                )

    def _check_size(self, target: Target) -> None:
        word = self._files.word
        expected, shape = list(target.saved_shape), list(self.shapes[target.source])
        uneven = shape[0] % target.pieces if shape else 0
        if target.axis is not None and len(shape) == len(expected):
            shape[target.axis] *= self.count
        if shape != expected:
            raise UserError(f"{target.source}: {shape} over all {word}s; expected {expected}.")
        if uneven:
            raise UserError(
                f"{target.source}: the rows of one {word} do not make {target.pieces} equal "
                f"pieces; {self.count} {word}s cannot divide {expected}."
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


def check_matrices(
    shapes: Mapping[str, tuple[int, ...]], names: Iterable[str], problem: str, layout: str
) -> None:
    """Raise a UserError if one of the matrices is missing that give the model's sizes."""
    if absent := [name for name in names if len(shapes.get(name, ())) != 2]:
        raise UserError(f"{problem}: no matrix {absent[0]}.\nExpected {layout}.")


def layer_count(names: Iterable[str], stack: str) -> int:
    """Return the number of layers, whose tensors are named `stack`.0.*, `stack`.1.*, ..."""
    matches = (re.match(rf"{re.escape(stack)}\.(\d+)\.", name) for name in names)
    return 1 + max((int(match[1]) for match in matches if match), default=-1)
