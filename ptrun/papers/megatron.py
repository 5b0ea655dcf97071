"""Import of the parts of fairseq's Megatron-11B: `ptrun import megatron SOURCE --out DIR`.

The folder has XGLM's tensors. fairseq's code has a norm after the last layer by default, but the
released file probably has none. So the tensors decide, and the printed line reports it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from ptrun.errors import UserError, names
from ptrun.hub.convert import Dtype, Imported, write_config
from ptrun.hub.staging import check_new
from ptrun.papers.parts import Shards, Target, check_matrices, convert, layer_count
from ptrun.papers.shards import END, BytePairs, read_byte_pairs, read_parts, weight_and_bias
from ptrun.papers.tokenizers import write

_WORDS, _OUTPUT = "decoder.embed_tokens.weight", "decoder.output_projection.weight"
_FIRST = "decoder.layers.0.fc1.weight"
_NORM = "decoder.layer_norm"
_SPARE = ("decoder.version", "decoder.embed_positions._float_tensor")  # no weights


@dataclass(frozen=True)
class MegatronSizes:
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
) -> Imported:
    """Write the folder of a checkpoint and return a summary of it.

    The source has model-model_part-*.pt and dict.txt; `tokenizer` is a folder with GPT-2's.
    """
    check_new(out)
    parts, args = read_parts(source)
    shards = Shards(parts, "part")
    sizes = _sizes(shards)
    saved = _settings(args, sizes)
    pairs = read_tokenizer(tokenizer, source, sizes.vocab) if tokenizer else None
    tensors = targets(sizes)
    tied = {_OUTPUT: _WORDS} if _OUTPUT in shards.shapes else {}
    shards.check(tensors, model="Megatron-11B", aliases=tied, spare=_SPARE)

    def finish(folder: Path, kind: str) -> None:
        if pairs is not None:
            write_tokenizer(pairs, folder)
        write_config(folder, model_config(sizes, kind, saved))

    size = convert(shards, tensors, out, finish, dtype=dtype)
    notes = (
        "with a final norm" if sizes.final_norm else "no final norm in the file",
        *([] if pairs else ["no tokenizer (import with --tokenizer FOLDER, GPT-2's)"]),
    )
    return Imported(out, sizes, *size, notes)


def targets(sizes: MegatronSizes) -> list[Target]:
    """Return all tensors of the model, under the names of `XGLMForCausalLM`."""
    width, inner = sizes.width, sizes.inner
    layer: dict[str, tuple[tuple[int, ...], int | None]] = {  # shapes, and axes of the split
        **{f"self_attn.{letter}_proj": ((width, width), 0) for letter in "qkv"},
        "self_attn.out_proj": ((width, width), 1),
        "self_attn_layer_norm": ((width,), None),
        "fc1": ((inner, width), 0),
        "fc2": ((width, inner), 1),
        "final_layer_norm": ((width,), None),  # before fc1, in spite of its name
    }
    parts = {f"layers.{i}.{name}": layer[name] for i in range(sizes.layers) for name in layer}
    if sizes.final_norm:
        parts["layer_norm"] = ((width,), None)
    words = Target("model.embed_tokens.weight", _WORDS, (sizes.vocab, width), 0)
    pairs = (
        weight_and_bias((f"model.{name}", f"decoder.{name}"), shape, axis)
        for name, (shape, axis) in parts.items()
    )
    return [words, *chain.from_iterable(pairs)]


def model_config(sizes: MegatronSizes, dtype: str, saved: dict[str, Any]) -> dict[str, Any]:
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


def _sizes(shards: Shards) -> MegatronSizes:
    check_matrices(
        shards.shapes,
        (_WORDS, _FIRST),
        "this is not fairseq's Megatron",
        "only a decoder: decoder.embed_tokens, decoder.layers.*.{self_attn.q_proj, fc1, ...}",
    )
    rows, width = shards.shapes[_WORDS]
    return MegatronSizes(
        vocab=rows * shards.count,
        width=width,
        inner=shards.shapes[_FIRST][0] * shards.count,
        layers=layer_count(shards.shapes, "decoder.layers"),
        final_norm=any(name.startswith(f"{_NORM}.") for name in shards.shapes),
    )


def _settings(args: list[dict[str, Any]], sizes: MegatronSizes) -> dict[str, Any]:
    """Return the settings of the parts' args, which must be equal."""
    saved = [settings(part, sizes.width) for part in args]
    if any(other != saved[0] for other in saved):
        raise UserError("the parts hold different args; copy the parts of one model.")
    expected = {"embed_dim": sizes.width, "ffn_embed_dim": sizes.inner, "layers": sizes.layers}
    for name, size in expected.items():
        if (value := args[0].get(f"decoder_{name}", size)) != size:
            raise UserError(
                f"the tensors have decoder_{name} {size}, but args.decoder_{name} is {value}."
            )
    return saved[0]


# The settings saved with a fairseq checkpoint, as keys of config.json.
#
# They are those of models/transformer_lm.py in fairseq at the release of Megatron-11B (April 2020).
# A missing setting has the value of the architecture `transformer_lm_megatron_11b`.

_SUPPORTED = {  # setting: its only supported value
    "decoder_normalize_before": True,
    "decoder_learned_pos": False,
    "no_token_positional_embeddings": False,
    "share_decoder_input_output_embed": True,
    "adaptive_input": False,
    "adaptive_softmax_cutoff": None,
    "character_embeddings": False,
    "layernorm_embedding": False,
    "decoder_layerdrop": 0,
}
_ACTIVATIONS = {  # two of fairseq's names are GPT-2's approximation with a tanh
    "gelu": "gelu",
    "relu": "relu",
    "gelu_accurate": "gelu_new",
    "gelu_fast": "gelu_new",
}
_KNOWN_WIDTH, _KNOWN_HEADS = 3072, 32  # Megatron-11B's


def settings(args: Mapping[str, Any], width: int) -> dict[str, Any]:
    """Return the part of config.json that the shapes of the tensors do not give."""
    activation = args.get("activation_fn", "gelu")
    if activation not in _ACTIVATIONS:
        raise UserError(f"args.activation_fn is {activation!r}; allowed: {names(_ACTIVATIONS)}.")
    for name, supported in _SUPPORTED.items():
        if args.get(name, supported) != supported:
            raise UserError(
                f"args.{name} is {args[name]!r}; only {supported!r} is supported.\nptrun imports "
                "fairseq decoders with sinusoidal positions, pre-layer norms and tied embeddings."
            )
    return {
        "attention_heads": _heads(args, width),
        "activation_function": _ACTIVATIONS[activation],
        "max_position_embeddings": int(
            _number(args, "max_target_positions", 0)
            or _number(args, "tokens_per_sample", 0)
            or 1024
        ),
        "scale_embedding": not args.get("no_scale_embedding", False),
        "dropout": _number(args, "dropout", 0.1),
        "attention_dropout": _number(args, "attention_dropout", 0.1),
        "activation_dropout": _number(args, "activation_dropout", 0)
        or _number(args, "relu_dropout", 0),
    }


def _heads(args: Mapping[str, Any], width: int) -> int:
    heads = args.get("decoder_attention_heads", _KNOWN_HEADS if width == _KNOWN_WIDTH else None)
    if heads is None:
        raise UserError(
            "args.decoder_attention_heads, of an argparse.Namespace, is missing; only "
            f"{_KNOWN_WIDTH} columns have a default, here: {width}."
        )
    if not isinstance(heads, int) or heads < 1 or width % heads:
        raise UserError(f"args.decoder_attention_heads: {heads} does not divide {width} columns.")
    return heads


def _number(args: Mapping[str, Any], name: str, default: float) -> float:
    """Return a setting that is a number, or the default if it is missing."""
    value = args.get(name)
    if value is None:
        return float(default)
    if not isinstance(value, int | float):
        raise UserError(f"args.{name} is {value!r}; expected a number.")
    return float(value)


# Megatron-11B's tokenizer: GPT-2's BPE with fairseq's ids; it adds no special tokens to a text.
#
# fairseq's dictionary (dict.txt) has lines `SYMBOL COUNT`. A symbol is GPT-2's id of a token, or a
# filler such as madeupword0000. Line n has the id 4 + n, after <s>, <pad>, </s> and <unk>.

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
DICTIONARY = "dict.txt"
_FILLER = "madeupword"
_ROLES = {
    **dict(zip(("bos_token", "pad_token", "eos_token", "unk_token"), SPECIAL, strict=True)),
    "model_input_names": ["input_ids", "attention_mask"],
}


def read_tokenizer(folder: Path, source: Path, rows: int) -> BytePairs:
    """Return GPT-2's BPE with the ids of fairseq's dict.txt, fewer than the rows of embeddings."""
    pairs, file = read_byte_pairs(folder), source / DICTIONARY
    tokens = pairs.gpt2_tokens()
    if not file.is_file():
        raise UserError(f"--tokenizer {folder}: GPT-2's files need {file}, which is missing.")
    if pairs.vocabulary != {token: i for i, token in enumerate(tokens)}:
        raise UserError(f"--tokenizer {folder}: not GPT-2's vocabulary.")
    ids = _from_dictionary(tokens, file)
    if max(ids.values()) >= rows:
        raise UserError(
            f"--tokenizer {folder}: ids up to {max(ids.values())}, but the model has {rows} rows."
        )
    return BytePairs(ids, pairs.merges)


def write_tokenizer(pairs: BytePairs, folder: Path) -> None:
    """Write the files from which transformers loads the tokenizer."""
    tokenizer = pairs.tokenizer()
    tokenizer.add_special_tokens(list(SPECIAL))
    write(tokenizer, folder, _ROLES)


def _from_dictionary(tokens: list[str], file: Path) -> dict[str, int]:
    ids = {token: i for i, token in enumerate(SPECIAL)}
    try:
        lines = file.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: not text; expected fairseq's dictionary.") from error
    for number, line in enumerate(lines, 1):
        token = _token(line, tokens, f"{file}, line {number}")
        if token in ids:
            raise UserError(f"{file}, line {number}: {line!r} occurs twice.")
        ids[token] = len(ids)
    if absent := [token for token in tokens if token not in ids and token != END]:
        raise UserError(f"{file}: {len(absent)} of GPT-2's tokens missing, e.g. {absent[0]!r}.")
    return ids


def _token(line: str, tokens: list[str], place: str) -> str:
    symbol, _, count = line.rstrip().partition(" ")
    if count.isdecimal() and symbol.startswith(_FILLER):
        return symbol
    if count.isdecimal() and symbol.isdecimal() and int(symbol) < len(tokens):
        return tokens[int(symbol)]
    raise UserError(
        f"{place}: {line[:40]!r}; expected an id of GPT-2 below {len(tokens)}, or {_FILLER}0000, "
        "and a count."
    )
