"""What the settings saved with a fairseq checkpoint say of the model, as config.json's keys.

fairseq at the release of Megatron-11B (April 2020): models/transformer_lm.py. A setting that is not
there has the value of the architecture `transformer_lm_megatron_11b`.
"""

from collections.abc import Mapping
from typing import Any

from ptrun.errors import UserError

_HOSTED = {  # setting: the only value that we host
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
_ACTIVATIONS = {  # fairseq's two names with a tanh mean GPT-2's approximation
    "gelu": "gelu",
    "relu": "relu",
    "gelu_accurate": "gelu_new",
    "gelu_fast": "gelu_new",
}
_KNOWN_WIDTH, _KNOWN_HEADS = 3072, 32  # Megatron-11B's


def settings(args: Mapping[str, Any], width: int) -> dict[str, Any]:
    """Return the part of config.json that the tensors do not tell.

    Raises:
        UserError: a setting that we do not host, or no number of heads.
    """
    for name, hosted in _HOSTED.items():
        if args.get(name, hosted) != hosted:
            raise UserError(
                f"args.{name} is {args[name]!r}; only {hosted!r} is hosted: a decoder of "
                "fairseq with\nsinusoidal positions, norms before the layers and tied embeddings."
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
    """Compare sizes of the tensors with the settings of the same names.

    Raises:
        UserError: they differ.
    """
    for name, size in found.items():
        if args.get(name, size) != size:
            raise UserError(f"the tensors give {name} {size}, but args say {args[name]}.")


def _heads(args: Mapping[str, Any], width: int) -> int:
    heads = args.get("decoder_attention_heads", _KNOWN_HEADS if width == _KNOWN_WIDTH else None)
    if heads is None:
        raise UserError(
            f"no args.decoder_attention_heads in the checkpoint, and only {_KNOWN_WIDTH} columns "
            f"are known to have {_KNOWN_HEADS}; here: {width}.\n"
            "Save it with {'args': argparse.Namespace(decoder_attention_heads=N), 'model': ...}."
        )
    if not isinstance(heads, int) or heads < 1 or width % heads:
        raise UserError(f"args.decoder_attention_heads: {heads} do not share {width} columns.")
    return heads


def _activation(args: Mapping[str, Any]) -> str:
    name = args.get("activation_fn", "gelu")
    if name not in _ACTIVATIONS:
        raise UserError(f"args.activation_fn is {name!r}; hosted: {', '.join(_ACTIVATIONS)}.")
    return _ACTIVATIONS[name]


def _positions(args: Mapping[str, Any]) -> int:
    names = ("max_target_positions", "tokens_per_sample")
    return int(next((n for name in names if (n := _number(args, name, 0))), 1024))


def _number(args: Mapping[str, Any], name: str, usual: float) -> float:
    """Return a setting that is a number; the usual one where there is none."""
    value = args.get(name)
    if value is None:
        return float(usual)
    if not isinstance(value, int | float):
        raise UserError(f"args.{name} is {value!r}; expected a number.")
    return float(value)
