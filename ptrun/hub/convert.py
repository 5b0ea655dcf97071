"""Conversion of a checkpoint to a folder of safetensors, one file in memory at a time.

Files are memory-mapped if their format allows it, so memory stays far below the model's size. The
folder appears complete or not at all.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from safetensors.torch import save_file
from torch import Tensor

from ptrun.errors import UserError
from ptrun.files import read_bytes
from ptrun.hub.pickled import HubFiles
from ptrun.hub.staging import progress, staging

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


class Files(Protocol):
    """The files of a checkpoint; `word` is the name of a part in messages."""

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
        self.parts: Sequence[Mapping[str, Tensor]] = files.open()
        part = self.parts[0]
        self.count = len(self.parts)
        self.shapes = {name: tuple(tensor.shape) for name, tensor in part.items()}
        self.dtypes = {name: tensor.dtype for name, tensor in part.items()}
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
        aliases, word = aliases or {}, self._files.word
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
            word = self._files.word
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

    def _check_shapes(self) -> None:
        word = self._files.word
        for i, tensors in enumerate(self.parts):
            for name in sorted(self.shapes.keys() ^ tensors.keys()):
                raise UserError(f"{name} is in only one of {word}s 0 and {i}; expected it in both.")
            for name, tensor in tensors.items():
                expected = self.dtypes[name], self.shapes[name]
                other = tensor.dtype, tuple(tensor.shape)
                if other != expected:
                    raise UserError(f"{name}: {word} 0 holds {expected}, but {word} {i} {other}.")

    def _check_size(self, target: Target) -> None:
        word, saved = self._files.word, self.dtypes[target.source]
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


# Writing of a model as safetensors files, with the tensors of one file in memory at a time.

FILE_BYTES = 2_000_000_000
Dtype = Literal["fp16", "bf16", "fp32"]
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
_STORED = (
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8),
)


def write_model(
    out: Path,
    layout: Mapping[str, Tensor],
    read: Callable[[str], Tensor],
    finish: Callable[[Path], None],
    doing: str = "importing",
    file_bytes: int = FILE_BYTES,
) -> tuple[int, int]:
    """Write the folder of a model; return its number of parameters and their bytes.

    Args:
        out: a new or empty folder; it appears complete or not at all.
        layout: the tensors in order, on the meta device.
        read: returns a tensor by its name; called once for each, in order.
        finish: writes the other files into a folder.
        doing: what a progress bar shows.
        file_bytes: most bytes of a file; a larger tensor gets its own file.

    Raises:
        UserError: the disk is too full.
    """
    from huggingface_hub import split_torch_state_dict_into_shards

    split = split_torch_state_dict_into_shards(dict(layout), max_shard_size=file_bytes)
    total = sum(tensor.nbytes for tensor in layout.values())
    with staging(out, total) as folder, progress(total, doing) as advance:
        for file, names in split.filename_to_tensors.items():
            tensors, storages = dict[str, Tensor](), set[int]()
            for name in names:
                tensor, planned = read(name).contiguous(), layout[name]
                assert (tensor.dtype, tensor.shape) == (planned.dtype, planned.shape), name
                storage = tensor.untyped_storage().data_ptr()
                # the library refuses tensors that share memory
                tensors[name] = tensor.clone() if storage in storages else tensor
                storages.add(storage)
                advance(tensor.nbytes)
            save_file(tensors, folder / file, {"format": "pt"})
        if split.is_sharded:
            index = {"metadata": split.metadata, "weight_map": split.tensor_to_filename}
            _write_json(folder / "model.safetensors.index.json", index)
        finish(folder)
    return sum(tensor.numel() for tensor in layout.values()), total


def write_config(folder: Path, config: dict[str, Any]) -> None:
    """Write config.json."""
    _write_json(folder / "config.json", config)


def _write_json(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Imported:
    """The result of an import; `notes` are added to its line."""

    folder: Path
    sizes: Any  # the `Sizes` of the format, with `layers` and `vocab`
    parameters: int
    nbytes: int
    notes: tuple[str, ...] = ()

    def line(self) -> str:
        """Return the line that the command prints."""
        facts = [
            f"{self.folder}: {self.parameters:,} parameters",
            f"{self.sizes.layers} layers",
            f"vocabulary {self.sizes.vocab:,}",
            f"{self.nbytes / 1e9:.2f} GB",
            *self.notes,
        ]
        return ", ".join(facts)


def convert(
    shards: Shards,
    targets: Sequence[Target],
    out: Path,
    finish: Callable[[Path, str], None],
    *,
    dtype: Dtype | None = None,
    times: Callable[[str], float] = lambda name: 1.0,
    file_bytes: int = FILE_BYTES,
    doing: str = "importing",
) -> tuple[int, int]:
    """Write the folder of a model; return its number of parameters and their bytes.

    Args:
        shards: the checkpoint, already checked.
        targets: the tensors of the model, in order.
        out: a new or empty folder; it appears complete or not at all.
        finish: writes the other files into a folder; its second argument is the dtype's name.
        dtype: dtype of the numbers; defaults to that of each tensor. Integers keep theirs.
        times: the factor of a tensor, by its name.
        file_bytes: most bytes of a file.
        doing: what a progress bar shows.

    Raises:
        UserError: safetensors lacks a tensor's dtype, a value does not fit `dtype`, or the disk is
            too full.
    """
    layout, by_name = dict[str, Tensor](), {target.name: target for target in targets}
    for target in targets:
        saved = shards.dtypes[target.source]
        if saved not in _STORED:
            allowed = ", ".join(map(str, _STORED))
            raise UserError(f"{target.source}: dtype is {saved}; safetensors holds {allowed}.")
        cast = DTYPES[dtype] if dtype and saved.is_floating_point else saved
        layout[target.name] = torch.empty(target.model_shape, dtype=cast, device="meta")
    name = str(layout[targets[0].name].dtype).removeprefix("torch.")

    def read(name: str) -> Tensor:
        return converted(shards.join(by_name[name]), name, layout[name].dtype, times(name))

    return write_model(out, layout, read, lambda folder: finish(folder, name), doing, file_bytes)


def converted(tensor: Tensor, name: str, dtype: torch.dtype, times: float) -> Tensor:
    """Return a tensor scaled and cast; the same tensor if nothing changes.

    Raises:
        UserError: a value exceeds the range of fp16.
    """
    if times == 1.0 and tensor.dtype == dtype:
        return tensor
    exact = torch.promote_types(tensor.dtype, torch.float32)
    cast = (tensor.to(exact) * times if times != 1.0 else tensor).to(dtype)
    if dtype == torch.float16 and not bool(cast.isfinite().all()):
        raise UserError(f"{name}: a value exceeds the range of fp16; add --dtype bf16.")
    return cast


# Conversion of a model in pickled files as it is: the same names, tensor by tensor.

_LARGEST = 250_000_000  # bytes
_BESIDE = ("*.json", "*.txt", "*.model", "*.jinja", "*/*.jinja", "1_Pooling/config.json")


def convert_folder(
    source: Path, out: Path, dtype: Dtype | None = None, file_bytes: int = FILE_BYTES
) -> tuple[int, int]:
    """Write a model as safetensors, with its other files; return its parameters and their bytes.

    `source` is a folder as a repository of the hub has it; it keeps its files. Of several names for
    the same numbers the first is kept. The other arguments are those of `convert`.

    Raises:
        UserError: as `convert`, or a file is damaged or missing.
    """
    shards = Shards(HubFiles(source))
    seen: dict[object, str] = {}
    for name, tensor in shards.parts[0].items():
        place = tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype
        seen.setdefault(place if tensor.numel() else name, name)
    targets = [Target(name, name, shards.shapes[name]) for name in seen.values()]

    def finish(folder: Path, _: str) -> None:
        """Copy configuration and tokenizer; an index of weights names files that are not there."""
        for file in (path for pattern in _BESIDE for path in source.glob(pattern)):
            if not file.name.endswith(".index.json") and file.is_file():
                copy = folder / file.relative_to(source)
                copy.parent.mkdir(exist_ok=True)
                copy.write_bytes(read_bytes(file, _LARGEST, links=True))

    return convert(
        shards, targets, out, finish, dtype=dtype, file_bytes=file_bytes, doing="converting"
    )
