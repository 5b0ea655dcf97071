"""Pretrain a small backbone on the pocket corpus or on your own text: a model folder."""

import json
import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from ptrun.config.paths import describe, leads_out
from ptrun.errors import UserError, unknown
from ptrun.pocket.tasks import VERSION
from workshop import command
from workshop.pretrain.recipe import Recipe

_LOG = logging.getLogger("ptrun.workshop")  # printed like those of the package
CONF = Path(__file__).parents[1] / "conf"
EXAMPLES = """\
  python -m workshop.pretrain backbone=pocket_t5 corpus=DIR out=FOLDER    a small T5 on your text
"""


def recipes() -> dict[str, Path]:
    """Return the recipes of the workshop, by name."""
    return {file.stem: file for file in sorted(CONF.glob("*.yaml"))}


def main(arguments: Sequence[str]) -> None:
    """Write the folder of one model and print its metrics; an interrupted one goes on.

    Raises:
        UserError: a recipe, key or value is wrong, or the folder is not empty.
    """
    recipe = read(arguments)
    out = Path(recipe.out or f"outputs/pretrain/{recipe.name}")
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise UserError(f"out={out} is not empty. Give another folder, or remove it first.")
    _run(recipe, out)


def read(arguments: Sequence[str]) -> Recipe:
    """Return the recipe that the command line names, with its overrides.

    Raises:
        UserError: a recipe, key or value is wrong.
    """
    name, overrides = command.overrides("pretrain", __doc__, EXAMPLES, _keys(), arguments)
    name = name or "pocket_bert"
    if name not in (known := recipes()):
        raise UserError(unknown("backbone", name, known))
    settings = command.merged("pretrain", overrides, OmegaConf.load(known[name]))
    recipe = command.settings("pretrain", Recipe, settings)
    if leads_out(recipe.name):
        raise UserError(f"name={recipe.name}: expected the name of a folder.")
    return recipe


def _run(recipe: Recipe, out: Path) -> None:
    import torch

    from workshop.adapt import save_folder
    from workshop.pretrain.building import prepare

    recipe = replace(recipe, device=command.device(recipe.device))
    began = time.perf_counter()
    torch.manual_seed(recipe.seed)
    made = prepare(recipe)
    _LOG.info("prepared in %.0f s", time.perf_counter() - began)
    kept = out.with_name(f"{out.name}.state")
    log = made.trainer.train(made.train, kept)
    figures = made.trainer.evaluate(made.validation)
    facts = {
        "parameters": sum(p.numel() for p in made.trainer.model.parameters()),
        "corpus_tokens": sum(sum(map(len, row)) for row in made.train.rows),
        "train": log[-1] if log else {},
        "validation": figures,
        "seconds": round(time.perf_counter() - began, 1),
    }
    told = result(made.trainer.recipe, facts)
    save_folder(out, made.trainer.model.half(), made.tokenizer.save_pretrained, told, log)
    kept.unlink(missing_ok=True)
    print(json.dumps({"folder": str(out), **figures, "seconds": facts["seconds"]}))


def result(recipe: Recipe, facts: dict[str, Any]) -> dict[str, Any]:
    """Return the content of result.json; it has names instead of paths."""
    from workshop.adapt import versions

    plan = asdict(recipe) | {"corpus": Path(recipe.corpus).name}
    plan.pop("out")
    for key in ("generator", "initial"):
        if plan[key] is not None:
            plan[key] = Path(plan[key]).name
    return {
        "model": recipe.name,
        "world_version": VERSION if recipe.corpus == "pocket" else None,
        "plan": plan,
        **facts,
        "versions": versions(),
    }


def _keys() -> str:
    """Return the recipes and their keys."""
    described = [f"  {name:<16}{describe(file)}" for name, file in recipes().items()]
    title = "backbones (their keys: workshop/conf/NAME.yaml):"
    return "\n".join([title, *described, "", command.keys_of(Recipe)])


if __name__ == "__main__":
    sys.exit(command.run(main, sys.argv[1:]))
