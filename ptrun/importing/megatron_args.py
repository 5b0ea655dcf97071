"""The settings saved with a fairseq checkpoint, as keys of config.json.

They are those of models/transformer_lm.py in fairseq at the release of Megatron-11B (April 2020). A
missing setting has the value of the architecture `transformer_lm_megatron_11b`.
"""

from collections.abc import Mapping
from typing import Any

from ptrun.errors import UserError

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
    """Return the part of config.json that the shapes of the tensors do not give.

    Raises:
        UserError: a setting is not supported, or the number of heads is missing.
    """
    for name, supported in _SUPPORTED.items():
        if args.get(name, supported) != supported:
            raise UserError(
                f"args.{name} is {args[name]!r}; only {supported!r} is supported.\nptrun imports "
                "fairseq decoders with sinusoidal positions, pre-layer norms and tied embeddings."
            )
    return {
        "attention_heads": _heads(args, width),
        "activation_function": _activation(args),
        "max_position_embeddings": _positions(args),
        "scale_embedding": not args.get("no_scale_embedding", False),
        "dropout": _number(args, "dropout", 0.1),
        "attention_dropout": _number(args, "attention_dropout", 0.1),
        "activation_dropout": _number(args, "activation_dropout", 0)
        or _number(args, "relu_dropout", 0),
    }


def check_sizes(args: Mapping[str, Any], found: Mapping[str, int]) -> None:
    """Raise a UserError if a size of the tensors differs from the setting of the same name."""
    for name, size in found.items():
        if args.get(name, size) != size:
            raise UserError(f"the tensors have {name} {size}, but args.{name} is {args[name]}.")


def _heads(args: Mapping[str, Any], width: int) -> int:
    heads = args.get("decoder_attention_heads", _KNOWN_HEADS if width == _KNOWN_WIDTH else None)
    if heads is None:
        raise UserError(
            f"args.decoder_attention_heads is missing; its default of {_KNOWN_HEADS} is for "
            f"{_KNOWN_WIDTH} columns, here: {width}.\n"
            "Save it with {'args': argparse.Namespace(decoder_attention_heads=N), 'model': ...}."
        )
    if not isinstance(heads, int) or heads < 1 or width % heads:
        raise UserError(f"args.decoder_attention_heads: {heads} does not divide {width} columns.")
    return heads


def _activation(args: Mapping[str, Any]) -> str:
    name = args.get("activation_fn", "gelu")
    if name not in _ACTIVATIONS:
        raise UserError(f"args.activation_fn is {name!r}; allowed: {', '.join(_ACTIVATIONS)}.")
    return _ACTIVATIONS[name]


def _positions(args: Mapping[str, Any]) -> int:
    names = ("max_target_positions", "tokens_per_sample")
    return int(next((n for name in names if (n := _number(args, name, 0))), 1024))


def _number(args: Mapping[str, Any], name: str, default: float) -> float:
    """Return a setting that is a number, or the default if it is missing."""
    value = args.get(name)
    if value is None:
        return float(default)
    if not isinstance(value, int | float):
        raise UserError(f"args.{name} is {value!r}; expected a number.")
    return float(value)
