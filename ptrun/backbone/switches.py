"""The dropouts of a model and the epsilon of its norms; every model type names them differently."""

from dataclasses import dataclass, fields
from typing import Any

from ptrun.errors import UserError


@dataclass(frozen=True)
class Fields:
    """The fields of a model's configuration that each option sets; none if it has no such field.

    Args:
        dropout: dropout of embeddings and of the outputs of attention and feed-forward.
        attention_dropout: dropout of attention weights.
        layer_norm_eps: the epsilon of all norms.
    """

    dropout: tuple[str, ...] = ()
    attention_dropout: tuple[str, ...] = ()
    layer_norm_eps: tuple[str, ...] = ()


OPTIONS = tuple(field.name for field in fields(Fields))
NO_FIELDS = Fields()
ENCODER = Fields(("hidden_dropout_prob",), ("attention_probs_dropout_prob",), ("layer_norm_eps",))
GPT2 = Fields(("resid_pdrop", "embd_pdrop"), ("attn_pdrop",), ("layer_norm_epsilon",))
LLAMA = Fields((), ("attention_dropout",), ("rms_norm_eps",))
MEGATRON = Fields(("dropout",), ("attention_dropout",))
T5 = Fields(("dropout_rate",), (), ("layer_norm_epsilon",))  # one dropout, attention's too


def overrides(family: Any, name: str, *values: float | None) -> dict[str, float]:
    """Return the fields to override in a model's configuration, with their values.

    Args:
        family: the family of the model.
        name: the backbone, for messages.
        values: one for each of `OPTIONS`; None keeps the checkpoint's.

    Raises:
        UserError: the model has no such field, a dropout is not in [0, 1), or an epsilon is not
            positive.
    """
    named: Fields = family.fields
    given = {o: value for o, value in zip(OPTIONS, values, strict=True) if value is not None}
    allowed = [option for option in OPTIONS if getattr(named, option)]
    for option, value in given.items():
        if option not in allowed:
            raise UserError(
                f"backbone.{option}={value}: {name} has no such option. "
                f"Allowed: {', '.join(f'backbone.{own}' for own in allowed)}."
            )
        _check(option, value)
    return {field: value for option, value in given.items() for field in getattr(named, option)}


def _check(option: str, value: Any) -> None:
    if option == "layer_norm_eps" and not 0 < value < float("inf"):
        raise UserError(f"backbone.layer_norm_eps is {value}; use more than 0.")
    if option != "layer_norm_eps" and not 0 <= value < 1:
        raise UserError(f"backbone.{option} is {value}; use 0 or more, and less than 1.")
