"""A published checkpoint in parts: checked, joined tensor by tensor, and written as safetensors."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ptrun.errors import UserError
from ptrun.hub.convert import Dtype, converted, planned, write_model

# One tensor of a model, and its place in a checkpoint of one or more parts.
#
# Query, key and value are often fused, and the fused tensor is split over the parts after the
# fusion: a part holds its queries, its keys and its values, one below the other. So each part's
# tensor is cut into pieces first, and then the pieces of all parts are joined.


@dataclass(frozen=True)
class Target:
    """One tensor of the model.

    Args:
        name: name in the model.
        source: name in the checkpoint.
        shape: shape in the checkpoint, with all parts and the wanted pieces joined.
        axis: axis along which the parts are joined; None if every part holds the whole tensor.
        pieces: number of equal pieces of a part's tensor, along the first axis.
        piece: index of the wanted piece; None for all of them, one below the other.
        transposed: whether the model holds the transposed tensor.
    """

    name: str
    source: str
    shape: tuple[int, ...]
    axis: int | None = None
    pieces: int = 1
    piece: int | None = None
    transposed: bool = False

    @property
    def model_shape(self) -> tuple[int, ...]:
        """The shape in the model."""
        return self.shape[::-1] if self.transposed else self.shape

    @property
    def saved_shape(self) -> tuple[int, ...]:
        """The shape in the checkpoint, all pieces together."""
        rows = self.shape[0] * (1 if self.piece is None else self.pieces)
        return (rows, *self.shape[1:])


# The parts of one checkpoint: checked against each other, joined tensor by tensor.


class Shards:
    """A checkpoint of one or more parts; `word` is the name of a part in messages."""

    def __init__(self, parts: Sequence[Mapping[str, Tensor]], word: str = "rank"):
        self.parts, self.word = parts, word
        part = parts[0]
        self.count = len(self.parts)
        self.shapes = {name: tuple(tensor.shape) for name, tensor in part.items()}
        self.dtypes = {name: tensor.dtype for name, tensor in part.items()}
        for i, tensors in enumerate(parts):
            for name in sorted(self.shapes.keys() ^ tensors.keys()):
                raise UserError(f"{name} is in only one of {word}s 0 and {i}; expected it in both.")
            for name, tensor in tensors.items():
                expected = self.dtypes[name], self.shapes[name]
                other = tensor.dtype, tuple(tensor.shape)
                if other != expected:
                    raise UserError(f"{name}: {word} 0 holds {expected}, but {word} {i} {other}.")

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
        """
        aliases, word = aliases or {}, self.word
        needed = {target.source for target in targets} | {*aliases, *aliases.values()}
        saved = self.shapes.keys() - {*spare}
        for problem, names in {"missing": needed - saved, "unknown": saved - needed}.items():
            if names:
                shown = ", ".join(sorted(names)[:3])
                raise UserError(
                    f"the checkpoint does not fit {model}: {len(names)} {problem}, e.g. {shown}."
                )
        for target in targets:
            self._check_size(target)
            if target.axis is None:
                self.check_equal(target.source)
        for alias, name in aliases.items():
            for i, part in enumerate(self.parts):
                if not torch.equal(part[alias], part[name]):
                    raise UserError(
                        f"{alias} and {name} differ on {word} {i}; the model has one tensor for "
                        "both."
                    )

    def check_equal(self, name: str) -> None:
        """Raise a UserError if the parts hold different values of a tensor."""
        parts = [part[name] for part in self.parts]
        if other := [i for i, part in enumerate(parts) if not torch.equal(part, parts[0])]:
            word = self.word
            raise UserError(
                f"{name} should be the same on all {word}s; {word}s {other} differ from {word} 0."
            )

    def join(self, target: Target) -> Tensor:
        """Return a tensor of the model from all parts."""
        parts = [part[target.source] for part in self.parts]
        if target.axis is None:
            joined = parts[0]
        else:
            cut = [part.chunk(target.pieces) for part in parts]
            places = range(target.pieces) if target.piece is None else [target.piece]
            chosen = [pieces[i] for i in places for pieces in cut]
            joined = chosen[0] if len(chosen) == 1 else torch.cat(chosen, dim=target.axis)
        return (joined.T if target.transposed else joined).detach()

    def _check_size(self, target: Target) -> None:
        word, saved = self.word, self.dtypes[target.source]
        if not saved.is_floating_point:
            allowed = "weights are float16, bfloat16, float32 or float64"
            raise UserError(f"{target.source}: dtype is {saved}; {allowed}.")
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


def convert(
    shards: Shards,
    targets: Sequence[Target],
    out: Path,
    finish: Callable[[Path, str], None],
    *,
    dtype: Dtype | None = None,
    times: Callable[[str], float] = lambda name: 1.0,
) -> tuple[int, int]:
    """Write the folder of a model; return its number of parameters and their bytes.

    Args:
        shards: the checkpoint, already checked.
        targets: the tensors of the model, in order.
        out: a new or empty folder; it appears complete or not at all.
        finish: writes the other files into a folder; its second argument is the dtype's name.
        dtype: dtype of the numbers; defaults to that of each tensor. Integers keep theirs.
        times: the factor of a tensor, by its name.
    """
    by_name = {target.name: target for target in targets}
    layout = {
        name: planned(target.source, target.model_shape, shards.dtypes[target.source], dtype)
        for name, target in by_name.items()
    }
    kind = str(layout[targets[0].name].dtype).removeprefix("torch.")

    def read(name: str) -> Tensor:
        return converted(shards.join(by_name[name]), name, layout[name].dtype, times(name))

    return write_model(out, layout, read, lambda folder: finish(folder, kind))
