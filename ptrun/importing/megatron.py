"""Turns fairseq's Megatron-11B, in parts or merged, into a model folder: XGLM's tensors.

    ptrun import megatron SOURCE --out DIR

Whether there is a norm after the last layer depends on the file: the released one has, as far as is
known, none, while fairseq's code has one by default. So its tensors decide, and the line says it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptrun.errors import UserError
from ptrun.importing.convert import Dtype, Imported, convert, write_config
from ptrun.importing.megatron_args import check_sizes, settings
from ptrun.importing.megatron_tokenizer import read_tokenizer, write_tokenizer
from ptrun.importing.part_files import PartFiles
from ptrun.importing.shards import Shards
from ptrun.importing.staging import check_new
from ptrun.importing.target import Target
from ptrun.importing.writing import FILE_BYTES

_WORDS, _OUTPUT = "decoder.embed_tokens.weight", "decoder.output_projection.weight"
_FIRST = "decoder.layers.0.fc1.weight"
_NORM = "decoder.layer_norm"
_SPARE = ("decoder.version", "decoder.embed_positions._float_tensor")  # no weights


@dataclass(frozen=True)
class Sizes:
    """The whole model's sizes, all parts together."""

    vocab: int
    width: int
    inner: int
    n_layer: int
    final_norm: bool

    @property
    def layers(self) -> str:
        """How many layers."""
        return str(self.n_layer)


def import_megatron(
    source: Path,
    out: Path,
    *,
    dtype: Dtype | None = None,
    tokenizer: Path | None = None,
    file_bytes: int = FILE_BYTES,
) -> Imported:
    """Write the folder of a checkpoint and say what is in it.

    Args:
        source: folder with model-model_part-*.pt, or model.pt if merged, and dict.txt.
        out: the folder to write, new or empty.
        dtype: of the tensors; the checkpoint's own by default.
        tokenizer: folder with GPT-2's tokenizer, or RoBERTa's.
        file_bytes: size of a file, at most.

    Raises:
        UserError: the checkpoint is incomplete, its parts do not agree, we do not host such a
            model, a value does not fit the dtype, `out` is not empty, or the disk is too full.
            Nothing is left in `out` then.
    """
    check_new(out)
    files = PartFiles(source)
    shards = Shards(files)
    sizes = _sizes(shards)
    known = _settings(files, sizes)
    pairs = read_tokenizer(tokenizer, source, sizes.vocab) if tokenizer else None
    wanted = targets(sizes)
    _check(shards, wanted)

    def finish(folder: Path, kind: str) -> None:
        if pairs is not None:
            write_tokenizer(pairs, folder)
        write_config(folder, model_config(sizes, kind, known))

    written = convert(shards, wanted, out, finish, dtype=dtype, file_bytes=file_bytes)
    return Imported(out, sizes, *written, notes=tuple(_notes(sizes, has_tokenizer=bool(pairs))))


def targets(sizes: Sizes) -> list[Target]:
    """Return all tensors of the model, under the names of `XGLMForCausalLM`."""
    words = _target("embed_tokens.weight", (sizes.vocab, sizes.width), 0)
    layers = (target for i in range(sizes.n_layer) for target in _layer(f"layers.{i}", sizes))
    return [words, *layers, *(_norm("layer_norm", sizes) if sizes.final_norm else ())]


def model_config(sizes: Sizes, dtype: str, known: dict[str, Any]) -> dict[str, Any]:
    """Return the config.json of `MegatronLM`; `known` are the settings of the checkpoint."""
    return {
        "architectures": ["MegatronLM"],
        "model_type": "megatron",
        "dtype": dtype,
        "vocab_size": sizes.vocab,
        "d_model": sizes.width,
        "ffn_dim": sizes.inner,
        "num_layers": sizes.n_layer,
        **known,
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "tie_word_embeddings": True,
        "final_norm": sizes.final_norm,
    }


def _layer(name: str, s: Sizes) -> Iterator[Target]:
    for letter in "qkv":
        yield from _rows(f"{name}.self_attn.{letter}_proj", s.width, s.width)
    yield from _columns(f"{name}.self_attn.out_proj", s.width, s.width)
    yield from _norm(f"{name}.self_attn_layer_norm", s)
    yield from _rows(f"{name}.fc1", s.inner, s.width)
    yield from _columns(f"{name}.fc2", s.width, s.inner)
    yield from _norm(f"{name}.final_layer_norm", s)  # before fc1, in spite of its name


def _rows(name: str, rows: int, columns: int) -> Iterator[Target]:
    """Yield a matrix whose rows the parts share, and its bias."""
    yield _target(f"{name}.weight", (rows, columns), 0)
    yield _target(f"{name}.bias", (rows,), 0)


def _columns(name: str, rows: int, columns: int) -> Iterator[Target]:
    """Yield a matrix whose columns the parts share; each has all of the bias, added once."""
    yield _target(f"{name}.weight", (rows, columns), 1)
    yield _target(f"{name}.bias", (rows,), None)


def _norm(name: str, s: Sizes) -> Iterator[Target]:
    for leaf in ("weight", "bias"):
        yield _target(f"{name}.{leaf}", (s.width,), None)


def _target(name: str, shape: tuple[int, ...], axis: int | None) -> Target:
    return Target(f"model.{name}", f"decoder.{name}", shape, axis)


def _sizes(shards: Shards) -> Sizes:
    if absent := [n for n in (_WORDS, _FIRST) if len(shards.shapes.get(n, ())) != 2]:
        raise UserError(
            f"this is not fairseq's Megatron: no matrix {absent[0]}.\nExpected a decoder alone: "
            "decoder.embed_tokens, decoder.layers.*.{self_attn.q_proj, fc1, ...}."
        )
    rows, width = shards.shapes[_WORDS]
    found = (re.match(r"decoder\.layers\.(\d+)\.", name) for name in shards.shapes)
    return Sizes(
        vocab=rows * shards.count,
        width=width,
        inner=shards.shapes[_FIRST][0] * shards.count,
        n_layer=1 + max(int(match[1]) for match in found if match),
        final_norm=any(name.startswith(f"{_NORM}.") for name in shards.shapes),
    )


def _settings(files: PartFiles, sizes: Sizes) -> dict[str, Any]:
    """Return what the args of the parts say, the same in all of them."""
    first, *others = (settings(args, sizes.width) for args in files.args)
    if any(other != first for other in others):
        raise UserError("the parts hold different args; they are of different models.")
    found = {"embed_dim": sizes.width, "ffn_embed_dim": sizes.inner, "layers": sizes.n_layer}
    check_sizes(files.args[0], {f"decoder_{name}": size for name, size in found.items()})
    return first


def _check(shards: Shards, wanted: list[Target]) -> None:
    tied = {_OUTPUT: _WORDS} if _OUTPUT in shards.shapes else {}
    shards.check(wanted, model="Megatron-11B", aliases=tied, spare=_SPARE)


def _notes(sizes: Sizes, *, has_tokenizer: bool) -> Iterator[str]:
    yield "with a final norm" if sizes.final_norm else "no final norm in the file"
    if not has_tokenizer:
        yield "no tokenizer (import with --tokenizer FOLDER, GPT-2's or RoBERTa's tokenizer files)"
