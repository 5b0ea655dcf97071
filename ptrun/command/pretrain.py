"""Pretrain a small backbone on the pocket corpus or on your own text.

Writes a model folder. With --random it writes random weights in the full size of any backbone, to
test a machine. On a CPU, MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=100000000000 in the environment
save time.
"""

import inspect
import json
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ptrun.config import build, user_files
from ptrun.config.arguments import Parser
from ptrun.config.paths import describe, leads_out, options
from ptrun.config.suggest import unknown
from ptrun.errors import UserError
from ptrun.pretrain.recipe import Recipe

_LOG = logging.getLogger(__name__)
EXAMPLES = """\
  ptrun pretrain backbone=pocket_t5 corpus=DIR out=FOLDER              a small T5 on your text
  ptrun pretrain --random backbone=t5_xxl_lm_adapt out=FOLDER          11B random weights
"""


def parser() -> Parser:
    """Return the parser of the command line."""
    made = Parser("pretrain", __doc__, EXAMPLES)
    made.overrides("backbone=NAME and the keys below; model.KEY=VALUE goes deeper")
    made.add_argument("--random", action="store_true", help="write random weights, train nothing")
    return made


def main(arguments: Sequence[str]) -> None:
    """Write the folder of one model and print its metrics.

    Raises:
        UserError: a recipe, key or value is wrong, or the folder is not empty.
    """
    made = parser()
    if {"-h", "--help"} & set(arguments):
        made.epilog = f"{_keys()}\n\n{made.epilog}"
    given = made.parse(arguments)
    if given.random:
        from ptrun.pretrain.synthetic.command import main as write_random

        write_random(given.overrides)
        return
    recipe = read(given.overrides)
    out = Path(recipe.out or f"outputs/pretrain/{recipe.name}")
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise UserError(f"out={out} is not empty. Give another folder, or remove it first.")
    _run(recipe, out)


def read(arguments: Sequence[str]) -> Recipe:
    """Return the recipe that the command line names, with its overrides."""
    named = [a.removeprefix("backbone=") for a in arguments if a.startswith("backbone=")]
    name = named[-1] if named else "pocket_bert"
    recipes = options("pretrain")
    if name not in recipes:
        raise UserError(unknown("backbone", name, recipes))
    others = [a for a in arguments if not a.startswith("backbone=")]
    try:
        node = OmegaConf.merge(user_files.load(recipes[name]), OmegaConf.from_dotlist(others))
    except OmegaConfBaseException as error:
        raise UserError(f"pretrain: {str(error).splitlines()[0]}") from error
    with user_files.without_environment():
        content = build.plain(node)  # type: ignore[arg-type]
    build.check({"pretrain": content})
    if leads_out(str(content["name"])):
        raise UserError(f"name={content['name']}: expected the name of a folder.")
    made: Recipe = build.build("pretrain", content)
    return made


def _run(recipe: Recipe, out: Path) -> None:
    import torch

    from ptrun.pretrain import folder
    from ptrun.pretrain.building import prepare

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
    result = folder.result(made.trainer.recipe, facts)
    folder.save(out, made.trainer.model.half(), made.tokenizer.save_pretrained, result, log)
    print(json.dumps({"folder": str(out), **figures, "seconds": facts["seconds"]}))


def _device(wanted: str, cuda: bool) -> Literal["cpu", "cuda"]:
    """Return the requested device, with `auto` resolved."""
    if wanted == "cuda" and not cuda:
        raise UserError("device=cuda: this machine has no CUDA. Type device=cpu.")
    return "cuda" if cuda and wanted != "cpu" else "cpu"


def _keys() -> str:
    """Return the recipes and their keys, with and without `--random`."""
    from ptrun.pretrain.synthetic.recipe import Synthetic

    recipes = [f"  {name:<16}{describe(file)}" for name, file in options("pretrain").items()]
    keys, random = (
        inspect.cleandoc(made.__doc__ or "").split("Args:\n", 1)[1] for made in (Recipe, Synthetic)
    )
    head = "keys (defaults: conf/pretrain/NAME.yaml):"
    return "\n".join(["backbones:", *recipes, "", head, keys, "", "keys with --random:", random])
