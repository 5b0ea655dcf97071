"""`ptrun pretrain --random backbone=t5_xxl_lm_adapt out=DIR`: a model with random weights.

It serves tests of memory, speed, engines and formats, which need a model of full size only.
"""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ptrun.config import build, user_files
from ptrun.config.paths import options
from ptrun.config.suggest import unknown
from ptrun.errors import UserError
from ptrun.pretrain.synthetic.recipe import Synthetic

_TARGET = f"{Synthetic.__module__}.Synthetic"


def main(arguments: Sequence[str]) -> None:
    """Write one model folder and print its size.

    Raises:
        UserError: a name, key or value is wrong, `out` is not empty, or the disk is too full.
    """
    config, recipe = read(arguments)
    from ptrun.pretrain.synthetic.folder import write  # torch starts here, not with --help

    began = time.perf_counter()
    parameters, nbytes = write(Path(recipe.out).expanduser(), config, recipe)
    size = {"parameters": parameters, "gigabytes": round(nbytes / 1e9, 3)}
    seconds = round(time.perf_counter() - began, 1)
    print(json.dumps({"folder": recipe.out, **size, "seconds": seconds}))


def read(arguments: Sequence[str]) -> tuple[dict[str, Any], Synthetic]:
    """Return the model's configuration and the recipe of a command line.

    Raises:
        UserError: a name, key or value is wrong.
    """
    named = [a.removeprefix("backbone=") for a in arguments if a.startswith("backbone=")]
    try:
        overrides = OmegaConf.from_dotlist([a for a in arguments if not a.startswith("backbone=")])
    except OmegaConfBaseException as error:
        raise UserError(f"pretrain: {str(error).splitlines()[0]}") from error
    node = {"_target_": _TARGET, **build.plain(overrides)}
    build.check({"pretrain": node})
    recipe: Synthetic = build.build("pretrain", node)
    return {**(_published(named[-1]) if named else {}), **recipe.model}, recipe


def _published(name: str) -> dict[str, Any]:
    """Return the configuration from a backbone's YAML file, or from its folder in the package."""
    from ptrun.backbone import files

    if name not in (known := options("backbone")):
        raise UserError(unknown(f"backbone={name}", name, known))
    with user_files.without_environment():
        node = build.plain(user_files.load(known[name]))
    shipped = files.locate(node.get("shipped"), None)
    return files.read_config(shipped) if shipped else dict(node["config"])
