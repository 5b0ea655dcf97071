"""The state of an interrupted pre-training: `OUT.state`, from which the same command goes on."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from ptrun.errors import UserError
from workshop.pretrain.recipe import Recipe

_DICE, _SEEDS = "dice", "torch"  # the states of both generators of random numbers


def save(
    file: Path, recipe: Recipe, log: list[Any], model: Any, optimizer: Any, dice: torch.Generator
) -> None:
    """Write the state after the last line of the log, in place of the one before."""
    moments = optimizer.state_dict()["state"]
    tensors = {
        **{f"model.{name}": own.detach() for name, own in model.named_parameters()},
        **{f"{i}.{key}": own for i, kept in moments.items() for key, own in kept.items()},
        _DICE: dice.get_state(),
        _SEEDS: torch.get_rng_state(),
    }
    part = file.with_name(f"{file.name}.part")
    part.parent.mkdir(parents=True, exist_ok=True)
    facts = {"recipe": _settings(recipe), "log": json.dumps(log)}
    save_file({name: own.contiguous() for name, own in tensors.items()}, part, facts)
    part.replace(file)


def load(file: Path, recipe: Recipe, model: Any, optimizer: Any) -> tuple[list[Any], Any]:
    """Fill model and optimizer; return the log, and the state of the stream's random numbers.

    Raises:
        UserError: the state is of another recipe.
    """
    with safe_open(file, "pt") as stored:  # type: ignore[no-untyped-call]
        facts: dict[str, str] = stored.metadata()
        if facts["recipe"] != _settings(recipe):
            raise UserError(
                f"{file} is the state of another recipe. Type its options to go on, give another "
                "out=, or remove the file."
            )
        tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors.pop(f"model.{name}"))
    dice = tensors.pop(_DICE)
    torch.set_rng_state(tensors.pop(_SEEDS))
    moments: dict[int, dict[str, Any]] = {}
    for name, own in tensors.items():
        place, key = name.split(".")
        moments.setdefault(int(place), {})[key] = own
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": moments, "param_groups": groups})
    return json.loads(facts["log"]), dice


def _settings(recipe: Recipe) -> str:
    # Without what may change before training goes on.
    return json.dumps({**asdict(recipe), "out": None, "device": None, "steps": None})
