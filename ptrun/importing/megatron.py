"""Import of fairseq's Megatron-11B, in parts or merged: `ptrun import megatron SOURCE --out DIR`.

The folder has XGLM's tensors. fairseq's code has a norm after the last layer by default, but the
released file probably has none. So the tensors decide, and the printed line reports it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptrun.converting.convert import Dtype, Imported, convert, write_config
from ptrun.converting.shards import Shards, check_matrices, layer_count
from ptrun.converting.staging import check_new
from ptrun.converting.target import Target
from ptrun.converting.writing import FILE_BYTES
from ptrun.errors import UserError
from ptrun.importing.megatron_args import check_sizes, settings
from ptrun.importing.megatron_tokenizer import read_tokenizer, write_tokenizer
from ptrun.importing.part_files import PartFiles

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
    layers: int
    final_norm: bool


def import_megatron(
    source: Path,
    out: Path,
    *,
    dtype: Dtype | None = None,
    tokenizer: Path | None = None,
    file_bytes: int = FILE_BYTES,
) -> Imported:
    """Write the folder of a checkpoint and return a summary of it.

    Args:
        source: folder with model-model_part-*.pt, or model.pt if merged, and dict.txt.
        out: a new or empty folder.
        dtype: dtype of the tensors; defaults to the checkpoint's.
        tokenizer: folder with GPT-2's tokenizer, or RoBERTa's.
        file_bytes: most bytes of a file.

    Raises:
        UserError: the checkpoint is incomplete, its parts differ, such a model is not supported, a
            value does not fit the dtype, `out` is not empty, or the disk is too full. Nothing is
            written to `out` then.
    """
    check_new(out)
    files = PartFiles(source)
    shards = Shards(files)
    sizes = _sizes(shards)
    saved = _settings(files, sizes)
    pairs = read_tokenizer(tokenizer, source, sizes.vocab) if tokenizer else None
    wanted = targets(sizes)
    tied = {_OUTPUT: _WORDS} if _OUTPUT in shards.shapes else {}
    shards.check(wanted, model="Megatron-11B", aliases=tied, spare=_SPARE)

    def finish(folder: Path, kind: str) -> None:
        if pairs is not None:
            write_tokenizer(pairs, folder)
        write_config(folder, model_config(sizes, kind, saved))

    size = convert(shards, wanted, out, finish, dtype=dtype, file_bytes=file_bytes)
    return Imported(out, sizes, *size, notes=tuple(_notes(sizes, has_tokenizer=bool(pairs))))


def targets(sizes: Sizes) -> list[Target]:
    """Return all tensors of the model, under the names of `XGLMForCausalLM`."""
    words = _target("embed_tokens.weight", (sizes.vocab, sizes.width), 0)
    layers = (target for i in range(sizes.layers) for target in _layer(f"layers.{i}", sizes))
    return [words, *layers, *(_norm("layer_norm", sizes) if sizes.final_norm else ())]


def model_config(sizes: Sizes, dtype: str, saved: dict[str, Any]) -> dict[str, Any]:
    """Return the config.json of `MegatronLM`; `saved` are the settings of the checkpoint."""
    return {
        "architectures": ["MegatronLM"],
        "model_type": "megatron",
        "dtype": dtype,
        "vocab_size": sizes.vocab,
        "d_model": sizes.width,
        "ffn_dim": sizes.inner,
        "num_layers": sizes.layers,
        **saved,
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "tie_word_embeddings": True,
        "final_norm": sizes.final_norm,
    }


def _layer(name: str, s: Sizes) -> Iterator[Target]:
    for letter in "qkv":
        yield from _linear(f"{name}.self_attn.{letter}_proj", s.width, s.width, axis=0)
    yield from _linear(f"{name}.self_attn.out_proj", s.width, s.width, axis=1)
    yield from _norm(f"{name}.self_attn_layer_norm", s)
    yield from _linear(f"{name}.fc1", s.inner, s.width, axis=0)
    yield from _linear(f"{name}.fc2", s.width, s.inner, axis=1)
    yield from _norm(f"{name}.final_layer_norm", s)  # before fc1, in spite of its name


def _linear(name: str, rows: int, columns: int, *, axis: int) -> Iterator[Target]:
    """Yield a matrix that is split along an axis, and its bias; a split of columns repeats it."""
    yield _target(f"{name}.weight", (rows, columns), axis)
    yield _target(f"{name}.bias", (rows,), 0 if axis == 0 else None)


def _norm(name: str, s: Sizes) -> Iterator[Target]:
    for leaf in ("weight", "bias"):
        yield _target(f"{name}.{leaf}", (s.width,), None)


def _target(name: str, shape: tuple[int, ...], axis: int | None) -> Target:
    return Target(f"model.{name}", f"decoder.{name}", shape, axis)


def _sizes(shards: Shards) -> Sizes:
    check_matrices(
        shards.shapes,
        (_WORDS, _FIRST),
        "this is not fairseq's Megatron",
        "only a decoder: decoder.embed_tokens, decoder.layers.*.{self_attn.q_proj, fc1, ...}",
    )
    rows, width = shards.shapes[_WORDS]
    return Sizes(
        vocab=rows * shards.count,
        width=width,
        inner=shards.shapes[_FIRST][0] * shards.count,
        layers=layer_count(shards.shapes, "decoder.layers"),
        final_norm=any(name.startswith(f"{_NORM}.") for name in shards.shapes),
    )


def _settings(files: PartFiles, sizes: Sizes) -> dict[str, Any]:
    """Return the settings of the parts' args, which must be equal."""
    first, *others = (settings(args, sizes.width) for args in files.args)
    if any(other != first for other in others):
        raise UserError("the parts hold different args; copy the parts of one model.")
    expected = {"embed_dim": sizes.width, "ffn_embed_dim": sizes.inner, "layers": sizes.layers}
    check_sizes(files.args[0], {f"decoder_{name}": size for name, size in expected.items()})
    return first


def _notes(sizes: Sizes, *, has_tokenizer: bool) -> Iterator[str]:
    yield "with a final norm" if sizes.final_norm else "no final norm in the file"
    if not has_tokenizer:
        yield "no tokenizer (import with --tokenizer FOLDER, GPT-2's or RoBERTa's tokenizer files)"
