"""Conversion of a checkpoint to a folder of safetensors, one file in memory at a time.

Files are memory-mapped if their format allows it, so memory stays far below the model's size. The
folder appears complete or not at all.
"""

import errno
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from ptrun.errors import UserError, system_error
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
    """The files of a checkpoint.

    `word` is the name of a part in messages.
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
            joined = parts[0]
        else:
            cut = [part.chunk(target.pieces) for part in parts]
            places = range(target.pieces) if target.piece is None else [target.piece]
            chosen = [pieces[i] for i in places for pieces in cut]
            joined = chosen[0] if len(chosen) == 1 else torch.cat(chosen, dim=target.axis)
        return (joined.T if target.transposed else joined).detach()

    def read(self, name: str) -> list[Tensor]:
        """Return the tensor of each part."""
        return [part[name] for part in self.parts]

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
            for i, (tensor, other) in enumerate(pairs):
                if not torch.equal(tensor, other):
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


# Writing of a model as safetensors files, with the tensors of one file in memory at a time.

FILE_BYTES = 2_000_000_000
_STORED = (
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8),
)


@dataclass(frozen=True)
class Entry:
    """A tensor to write."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        """Its size on disk."""
        return prod(self.shape) * self.dtype.itemsize


def write_model(
    folder: Path,
    entries: Sequence[Entry],
    read: Callable[[Entry], Tensor],
    file_bytes: int = FILE_BYTES,
) -> list[Path]:
    """Write all tensors, and the index of several files; return the files.

    Args:
        folder: the folder of the files.
        entries: the tensors, in order.
        read: returns a tensor; called once for each, in order.
        file_bytes: most bytes of a file; a larger tensor gets its own file.
    """
    from huggingface_hub import split_torch_state_dict_into_shards

    by_name = {entry.name: entry for entry in entries}
    sizes = {e.name: torch.empty(e.shape, dtype=e.dtype, device="meta") for e in entries}
    split = split_torch_state_dict_into_shards(sizes, max_shard_size=file_bytes)
    for name, tensors in split.filename_to_tensors.items():
        write_file(folder / name, [by_name[tensor] for tensor in tensors], read)
    if split.is_sharded:
        index = {"metadata": split.metadata, "weight_map": split.tensor_to_filename}
        text = json.dumps(index, indent=2) + "\n"
        (folder / "model.safetensors.index.json").write_text(text, encoding="utf-8")
    return [folder / name for name in split.filename_to_tensors]


def write_file(file: Path, entries: Iterable[Entry], read: Callable[[Entry], Tensor]) -> None:
    """Write one safetensors file."""
    tensors, storages = dict[str, Tensor](), set[int]()
    for entry in entries:
        tensor = read(entry).contiguous()
        assert (tensor.dtype, tuple(tensor.shape)) == (entry.dtype, entry.shape), entry
        storage = tensor.untyped_storage().data_ptr()
        # the library refuses tensors that share memory
        tensors[entry.name] = tensor.clone() if storage in storages else tensor
        storages.add(storage)
    try:
        save_file(tensors, file, {"format": "pt"})
    except SafetensorError as error:
        raise system_error(error) or OSError(errno.EIO, str(error)) from error


Dtype = Literal["fp16", "bf16", "fp32"]
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}


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
) -> tuple[int, int]:
    """Write the folder of a model; return its number of parameters and their bytes.

    Args:
        shards: the checkpoint, already checked.
        targets: the tensors of the model, in order.
        out: a new or empty folder.
        finish: writes the other files into a folder; its second argument is the dtype's name.
        dtype: dtype of the tensors; defaults to the checkpoint's.
        times: the factor of a tensor, by its name.
        file_bytes: most bytes of a file.

    Raises:
        UserError: a value does not fit the dtype, or the disk is too full. Nothing is written then.
    """
    entries = {target: _entry_of_target(shards, target, dtype) for target in targets}
    by_name = {entry.name: target for target, entry in entries.items()}
    total = sum(entry.nbytes for entry in entries.values())
    with staging(out, total) as folder, progress(total) as advance:

        def read(entry: Entry) -> Tensor:
            tensor = converted(shards.join(by_name[entry.name]), entry, times(entry.name))
            advance(entry.nbytes)
            return tensor

        write_model(folder, list(entries.values()), read, file_bytes)
        finish(folder, str(entries[targets[0]].dtype).removeprefix("torch."))
    return sum(torch.Size(entry.shape).numel() for entry in entries.values()), total


def converted(tensor: Tensor, entry: Entry, times: float) -> Tensor:
    """Return a tensor scaled and cast; the same tensor if nothing changes.

    Raises:
        UserError: a value exceeds the range of fp16.
    """
    if times == 1.0 and tensor.dtype == entry.dtype:
        return tensor
    exact = torch.promote_types(tensor.dtype, torch.float32)
    cast = (tensor.to(exact) * times if times != 1.0 else tensor).to(entry.dtype)
    if entry.dtype == torch.float16 and not bool(cast.isfinite().all()):
        raise UserError(f"{entry.name}: a value exceeds the range of fp16; add --dtype bf16.")
    return cast


def write_config(folder: Path, config: dict[str, Any]) -> None:
    """Write config.json."""
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _entry_of_target(shards: Shards, target: Target, dtype: Dtype | None) -> Entry:
    saved = shards.dtypes[target.source]
    if saved not in _STORED or not saved.is_floating_point:
        raise UserError(
            f"{target.source}: dtype is {saved}; weights are float16, bfloat16, float32 or float64."
        )
    return Entry(target.name, target.model_shape, DTYPES[dtype] if dtype else saved)


# Conversion of a model in pickled files as it is: the same names, tensor by tensor.

_LARGEST = 250_000_000  # bytes
_BESIDE = ("*.json", "*.txt", "*.model", "*.jinja", "*/*.jinja", "1_Pooling/config.json")


def convert_folder(
    source: Path, out: Path, dtype: Dtype | None = None, file_bytes: int = FILE_BYTES
) -> tuple[int, int]:
    """Write a model as safetensors, with its other files; return its parameters and their bytes.

    Args:
        source: a folder as a repository of the hub has it; it keeps its files.
        out: a new or empty folder; it appears complete or not at all.
        dtype: dtype of the numbers; defaults to that of each tensor. Integers keep theirs.
        file_bytes: most bytes of a file.

    Raises:
        UserError: a file is damaged or missing, a tensor has a dtype that safetensors lacks, a
            value does not fit `dtype`, or the disk is too full.
    """
    shards = Shards(HubFiles(source))
    entries = [_entry_as_it_is(shards, name, dtype) for name in _without_copies(*shards.parts)]
    total = sum(entry.nbytes for entry in entries)
    with staging(out, total) as folder, progress(total, "converting") as advance:

        def read(entry: Entry) -> Tensor:
            advance(entry.nbytes)
            return converted(shards.read(entry.name)[0], entry, 1.0)

        write_model(folder, entries, read, file_bytes)
        _copy_beside(source, folder)
    return sum(entry.nbytes // entry.dtype.itemsize for entry in entries), total


def _without_copies(tensors: Mapping[str, Tensor]) -> list[str]:
    """Return the names of tensors; of several names for the same numbers the first one."""
    seen: dict[object, str] = {}
    for name, tensor in tensors.items():
        place = tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype
        seen.setdefault(place if tensor.numel() else name, name)
    return list(seen.values())


def _entry_as_it_is(shards: Shards, name: str, dtype: Dtype | None) -> Entry:
    saved = shards.dtypes[name]
    if saved not in _STORED:
        allowed = ", ".join(map(str, _STORED))
        raise UserError(f"{name}: dtype is {saved}; safetensors holds {allowed}.")
    cast = DTYPES[dtype] if dtype and saved.is_floating_point else saved
    return Entry(name, shards.shapes[name], cast)


def _copy_beside(source: Path, folder: Path) -> None:
    """Copy configuration and tokenizer; an index of weights names files that are not there."""
    for file in (path for pattern in _BESIDE for path in source.glob(pattern)):
        if not file.name.endswith(".index.json") and file.is_file():
            copy = folder / file.relative_to(source)
            copy.parent.mkdir(exist_ok=True)
            copy.write_bytes(_content(file))


def _content(file: Path) -> bytes:
    """Return the content of a small file."""
    try:
        return read_bytes(file, _LARGEST, links=True)
    except OSError as error:
        raise UserError(f"{file}: cannot be copied ({error.strerror}).") from error
