"""Pretrain a small backbone on the pocket corpus or on your own text: a model folder.

On a CPU, MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=100000000000 in the environment save time.
"""

import inspect
import json
import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ptrun.config import build, user_files
from ptrun.config.arguments import Parser
from ptrun.config.paths import describe, leads_out
from ptrun.errors import RunFailed, UserError, explained, unknown
from ptrun.hardware.environment import log_to_stderr, print_error
from ptrun.pocket.tasks import VERSION
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
    """Write the folder of one model and print its metrics.

    Raises:
        UserError: a recipe, key or value is wrong, or the folder is not empty.
    """
    made = Parser("pretrain", __doc__, EXAMPLES)
    made.overrides("backbone=NAME and the keys below; model.KEY=VALUE goes deeper")
    made.prog = "python -m workshop.pretrain"
    if {"-h", "--help"} & set(arguments):
        made.epilog = f"{_keys()}\n\n{made.epilog}"
    recipe = read(made.parse(arguments).overrides)
    out = Path(recipe.out or f"outputs/pretrain/{recipe.name}")
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise UserError(f"out={out} is not empty. Give another folder, or remove it first.")
    _run(recipe, out)


def read(arguments: Sequence[str]) -> Recipe:
    """Return the recipe that the command line names, with its overrides.

    Raises:
        UserError: a recipe, key or value is wrong.
    """
    named = [a.removeprefix("backbone=") for a in arguments if a.startswith("backbone=")]
    name = named[-1] if named else "pocket_bert"
    if name not in (known := recipes()):
        raise UserError(unknown("backbone", name, known))
    others = [a for a in arguments if not a.startswith("backbone=")]
    try:
        node = OmegaConf.merge(user_files.load(known[name]), OmegaConf.from_dotlist(others))
    except OmegaConfBaseException as error:
        raise UserError(f"pretrain: {str(error).splitlines()[0]}") from error
    content = build.plain(node)  # type: ignore[arg-type]
    recipe = build.settings("pretrain", Recipe, content)
    if leads_out(recipe.name):
        raise UserError(f"name={recipe.name}: expected the name of a folder.")
    return recipe


def _run(recipe: Recipe, out: Path) -> None:
    import torch

    from ptrun.pretrain.adapting import save_folder
    from workshop.pretrain.building import prepare

    recipe = replace(recipe, device=_device(recipe.device, torch.cuda.is_available()))
    began = time.perf_counter()
    torch.manual_seed(recipe.seed)
    made = prepare(recipe)
    _LOG.info("prepared in %.0f s", time.perf_counter() - began)
    log = made.trainer.train(made.train)
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
    print(json.dumps({"folder": str(out), **figures, "seconds": facts["seconds"]}))


def result(recipe: Recipe, facts: dict[str, Any]) -> dict[str, Any]:
    """Return the content of result.json; it has names instead of paths."""
    from ptrun.pretrain.adapting import versions

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


def _device(wanted: str, cuda: bool) -> Literal["cpu", "cuda"]:
    """Return the requested device, with `auto` resolved."""
    if wanted == "cuda" and not cuda:
        raise UserError("device=cuda: this machine has no CUDA. Type device=cpu.")
    return "cuda" if cuda and wanted != "cpu" else "cpu"


def _keys() -> str:
    """Return the recipes and their keys."""
    named = [f"  {name:<16}{describe(file)}" for name, file in recipes().items()]
    keys = inspect.cleandoc(Recipe.__doc__ or "").split("Args:\n", 1)[1]
    return "\n".join(["backbones:", *named, "", "keys (defaults: workshop/conf/NAME.yaml):", keys])


def told(arguments: Sequence[str]) -> int:
    """Run the command, say plainly what failed, and return the exit code."""
    log_to_stderr()
    try:
        main(arguments)
    except Exception as error:
        known = isinstance(error, (UserError, RunFailed))
        if (said := error if known else explained(error)) is None:
            raise
        print_error(said)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(told(sys.argv[1:]))
