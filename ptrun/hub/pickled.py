"""Reading of pickled tensors without unpickling: no name in a file is imported, nothing is called.

Both formats of `torch.save`: a zip, since torch 1.6, and before that pickles with the storages
behind them. A small machine runs the opcodes that dictionaries, lists, numbers, text and tensors
need. A tensor is a view of the mapped file, so memory holds only what is used.
"""

import io
import mmap
import pickle
import struct
import warnings
import zipfile
import zlib
from argparse import Namespace
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from ptrun.errors import UserError
from ptrun.files import opened, read_json

_POINTER = b"version https://git-lfs"
_MAGIC, _VERSION = 0x1950A86A20F9469CFC6C, 1001  # of files from before torch 1.6
_DAMAGED = (
    *(OSError, EOFError, ValueError, LookupError, TypeError, AttributeError),
    *(ArithmeticError, struct.error),
    *(RuntimeError, AssertionError, MemoryError, pickle.UnpicklingError, zipfile.BadZipFile),
)
"""The errors of the standard library on bytes that are no pickle or no zip."""


def open_file(file: Path, keys: Sequence[str] = (), what: str = "tensors by name") -> Any:
    """Return the content of a file; its tensors are views of the mapped file, not to be written.

    Args:
        file: the file.
        keys: the keys in use, the tensors' key last; empty if the tensors are at the top level.
        what: the expected kind of file, for messages.

    Raises:
        UserError: the file is damaged, holds objects that may run code, or has no tensors there.
    """
    _check_kind(file)
    try:
        mapped, held = _unpickled(file)
        inside: Any = held.get(keys[-1]) if keys and isinstance(held, dict) else held
        if not _are_tensors(inside):
            place = f"under {keys[-1]!r}" if keys else "at its top"
            raise UserError(f"{file}: no tensors {place}; expected {what}.")
        tensors = {name: _view(mapped, each) for name, each in inside.items()}
    except _Refused as error:
        reason = f"holds {error}; only tensors are loaded."
        raise UserError(f"{file}: {reason}\n{_advice(file, keys)}") from error
    except _DAMAGED as error:
        raise UserError(f"{file}: damaged or cut short; copy or download it again.") from error
    return {**held, keys[-1]: tensors} if keys else tensors


def _check_kind(file: Path) -> None:
    """Reject files that torch did not write, such as an error page saved as a file."""
    try:
        with opened(file, links=True) as source:
            start = source.read(len(_POINTER))
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror}).") from error
    if start == _POINTER:
        raise UserError(f"{file}: a Git LFS pointer, not the file; type git lfs pull there.")
    if start and not start.startswith((b"PK", b"\x80")):  # a zip, or a pickle since protocol 2
        raise UserError(f"{file}: not a file of tensors; copy or download it again.")


class _Refused(Exception):
    """A pickle names an object that is no tensor."""


@dataclass
class _Storage:
    """Numbers of one dtype; `start` and `end` are their bytes in the file."""

    dtype: torch.dtype
    count: int
    start: int = 0
    end: int = -1


@dataclass(frozen=True)
class _Tensor:
    """A view of a storage, counted in elements."""

    storage: _Storage
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


class _Ignored:
    """A random state or a setting of numpy: never asked for, so not made."""

    def __init__(self, *_: object):
        pass


def _tensor(
    storage: _Storage, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: object
) -> _Tensor:
    return _Tensor(storage, offset, size, stride)


def _parameter(data: _Tensor, *_: object) -> _Tensor:
    return data


_DTYPES = {
    "Double": torch.float64, "Float": torch.float32, "Half": torch.float16,
    "BFloat16": torch.bfloat16, "Long": torch.int64, "Int": torch.int32, "Short": torch.int16,
    "Char": torch.int8, "Byte": torch.uint8, "Bool": torch.bool,
    "ComplexDouble": torch.complex128, "ComplexFloat": torch.complex64,
}  # fmt: skip
_NUMPY = ("ndarray", "dtype", *(f"{c}.multiarray.{n}" for c in ("core", "_core") for n in
          ("_reconstruct", "scalar")))  # fmt: skip
_NAMES: dict[str, Any] = {
    "collections.OrderedDict": OrderedDict,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_parameter": _parameter,
    "torch.Size": tuple,
    **{f"torch.{name}Storage": dtype for name, dtype in _DTYPES.items()},
    **{str(dtype): dtype for dtype in _DTYPES.values()},
    # of checkpoints of a training
    "argparse.Namespace": Namespace,
    **dict.fromkeys(("__builtin__.set", "builtins.set"), set),
    **dict.fromkeys(("torch.device", "_codecs.encode"), _Ignored),
    **dict.fromkeys((f"numpy.{name}" for name in _NUMPY), _Ignored),
}
"""What a name in a pickle stands for; any other is refused."""
_CALLED = (OrderedDict, _tensor, _parameter, tuple, Namespace, set, _Ignored)
_OPCODES = """
    PROTO STOP MARK POP NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 LONG4 BINFLOAT
    BINUNICODE BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES EMPTY_TUPLE TUPLE TUPLE1 TUPLE2
    TUPLE3 EMPTY_LIST APPEND APPENDS EMPTY_DICT SETITEM SETITEMS BINPUT LONG_BINPUT BINGET
    LONG_BINGET GLOBAL BINPERSID
"""
_PLAIN = {code: pickle._Unpickler.dispatch[code] for code in (
    getattr(pickle, name)[0] for name in _OPCODES.split()
)}  # fmt: skip


class _Machine(pickle._Unpickler):
    """Runs a pickle; calls only `_CALLED`, which make tensors and plain containers.

    The standard library's machine in C fills memory up to a number that a file names (3.11).
    """

    stack: list[Any]
    append: Callable[[Any], None]

    def __init__(self, source: Any):
        super().__init__(source, encoding="latin1")
        self.storages: dict[str, _Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (found := _NAMES.get(f"{module}.{name}")) is None:
            raise _Refused(f"{module}.{name}")
        return found

    def persistent_load(self, pid: Any) -> _Storage:
        kind, dtype, key, _, count, *view = pid
        if kind != "storage" or not isinstance(dtype, torch.dtype) or any(view):
            raise ValueError(f"not a storage: {pid}")
        return self.storages.setdefault(key, _Storage(dtype, count))

    def make(self) -> None:
        arguments, called = self.stack.pop(), self.stack.pop()
        if not any(called is one for one in _CALLED):
            raise _Refused(str(called))
        self.append(called(*arguments))

    def build(self) -> None:
        state = self.stack.pop()
        if isinstance(self.stack[-1], Namespace):
            vars(self.stack[-1]).update(state)

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        **_PLAIN,
        **dict.fromkeys((pickle.REDUCE[0], pickle.NEWOBJ[0]), make),
        pickle.BUILD[0]: build,
    }


def _unpickled(file: Path) -> tuple[mmap.mmap, Any]:
    """Return a mapped file and its content, whose tensors are `_Tensor`s."""
    with opened(file, links=True) as source:
        mapped = mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ)
    return mapped, _from_zip(file, mapped) if mapped[:2] == b"PK" else _from_pickles(mapped)


def _from_zip(file: Path, mapped: mmap.mmap) -> Any:
    """Return the content of a zip: `NAME/data.pkl`, and a storage in each `NAME/data/KEY`."""
    with zipfile.ZipFile(file) as zipped:
        infos = {info.filename.partition("/")[2]: info for info in zipped.infolist()}
    start, end = _place(infos["data.pkl"], mapped)
    pickled = mapped[start:end]
    order = (
        mapped[slice(*_place(infos["byteorder"], mapped))] if "byteorder" in infos else b"little"
    )
    if zlib.crc32(pickled) != infos["data.pkl"].CRC or order != b"little":
        raise ValueError("another checksum or byte order")
    machine = _Machine(io.BytesIO(pickled))
    held = machine.load()
    for key, storage in machine.storages.items():
        storage.start, storage.end = _place(infos[f"data/{key}"], mapped)
    return held


def _place(info: zipfile.ZipInfo, mapped: mmap.mmap) -> tuple[int, int]:
    """Return the first byte of a record of a zip, and the byte after its last."""
    at = info.header_offset
    signature, name, extra = struct.unpack("<4s22xHH", mapped[at : at + 30])
    start = at + 30 + name + extra
    if signature != b"PK\3\4" or info.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{info.filename} is not stored as it is")
    return start, start + info.file_size


def _from_pickles(mapped: mmap.mmap) -> Any:
    """Return the content of a file from before torch 1.6: five pickles, then the storages."""
    magic, version, system = (_Machine(mapped).load() for _ in range(3))
    if (magic, version, system["little_endian"]) != (_MAGIC, _VERSION, True):
        raise ValueError("not written by torch on a little-endian machine")
    machine = _Machine(mapped)
    held = machine.load()
    for key in _Machine(mapped).load():
        storage = machine.storages[key]
        (count,) = struct.unpack("<q", mapped.read(8))
        storage.start = mapped.tell()
        storage.end = storage.start + count * storage.dtype.itemsize
        mapped.seek(storage.end)
    return held


def _are_tensors(held: object) -> bool:
    """Return whether an object holds tensors by name, and nothing else."""
    values = list(held.values()) if isinstance(held, dict) else []
    return bool(values) and all(isinstance(value, _Tensor) for value in values)


def _view(mapped: mmap.mmap, tensor: _Tensor) -> Tensor:
    """Return a tensor on the mapped file."""
    storage, sizes = tensor.storage, tuple(tensor.size)
    strides = tuple(tensor.stride)
    last = sum((n - 1) * step for n, step in zip(sizes, strides, strict=True))
    inside = min((tensor.offset, *sizes, *strides)) >= 0 and tensor.offset + last < storage.count
    whole = storage.start + storage.count * storage.dtype.itemsize <= min(storage.end, len(mapped))
    if 0 not in sizes and not (inside and whole):
        raise ValueError("a tensor outside of its storage")
    if 0 in sizes:
        return torch.empty(sizes, dtype=storage.dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the file is mapped to be read, not written
        options: Any = {"dtype": storage.dtype, "count": storage.count, "offset": storage.start}
        return torch.frombuffer(mapped, **options).as_strided(sizes, strides, tensor.offset)


def _advice(file: Path, keys: Sequence[str]) -> str:
    """Return how to keep only the tensors."""
    kept = ", ".join(f"{key!r}: state[{key!r}]" for key in keys)
    return (
        "Such objects may run code. If you trust the file, keep only its tensors:\n"
        f"state = torch.load('{file.name}', weights_only=False, map_location='cpu'); "
        f"torch.save({f'{{{kept}}}' if keys else 'dict(state)'}, '{file.name}')"
    )


# The files of a local snapshot of a hub repository: one model, in one file or several.

_PATTERNS = ("*.safetensors", "pytorch_model*.bin")
_WHOLE = ("model.safetensors", "pytorch_model.bin")


class HubFiles:
    """A snapshot; the tensors of all files make a single part.

    Args:
        source: the folder; safetensors are preferred to pickled tensors.
        prefix: a prefix that is removed from the names.

    Raises:
        UserError: the folder has no such files, or lacks one that the index names.
    """

    word = "part"

    def __init__(self, source: Path, prefix: str = ""):
        self.files = _find(source)
        self._prefix = prefix

    def open(self) -> list[dict[str, Tensor]]:
        """Return the single part.

        Raises:
            UserError: a file cannot be opened, or a tensor occurs twice.
        """
        whole: dict[str, Tensor] = {}
        for file in self.files:
            for name, tensor in _read(file).items():
                bare = name.removeprefix(self._prefix)
                if bare in whole:
                    raise UserError(f"{file}: tensor {name} occurs twice in the snapshot.")
                whole[bare] = tensor
        return [whole]


def is_snapshot(source: Path) -> bool:
    """Return whether a folder holds such files."""
    return any(file.is_file() for pattern in _PATTERNS for file in source.glob(pattern))


def _find(source: Path) -> list[Path]:
    if (pattern := next((one for one in _PATTERNS if any(source.glob(one))), None)) is None:
        raise UserError(f"{source}: no weights; expected {' or '.join(_PATTERNS)}.")
    files = sorted(source.glob(pattern))
    if whole := [file for file in files if file.name in _WHOLE]:
        return whole  # other files beside it are variants of it
    named = {name for index in source.glob(f"{pattern}.index.json") for name in _named(index)}
    if absent := sorted(named - {file.name for file in files}):
        raise UserError(f"{source}: {', '.join(absent)} missing, but in the index; download again.")
    return [file for file in files if file.name in named] if named else files


def _named(index: Path) -> set[str]:
    try:
        return set(read_json(index, links=True)["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{index}: not an index of weights; download it again.") from error


def _read(file: Path) -> dict[str, Tensor]:
    try:
        opened(file, links=True).close()
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror}).") from error
    if file.suffix != ".safetensors":
        pickled: dict[str, Tensor] = open_file(file)
        return pickled
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors: dict[str, Tensor] = load_file(file)
    except SafetensorError as error:
        raise UserError(f"{file}: damaged or cut short; copy or download it again.") from error
    return tensors
