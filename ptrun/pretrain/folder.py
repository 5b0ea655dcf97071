"""The folder of a pre-trained backbone: configuration, weights, tokenizer, scores and log."""

import csv
import json
import platform
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ptrun.errors import named
from ptrun.pocket.tasks import VERSION
from ptrun.pretrain.recipe import Recipe
from ptrun.pretrain.training import Line


def save(
    out: Path,
    model: Any,
    write_tokenizer: Callable[[Path], Any],
    result: dict[str, Any],
    log: list[Line],
) -> None:
    """Write the folder, complete or not at all, with the weights in their dtype.

    Raises:
        OSError: it cannot be written, as on a full disk; nothing is left.
    """
    part = out.with_name(f"{out.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        with named(part):
            part.mkdir(parents=True)
            _write(part, model, write_tokenizer, result, log)
        if out.exists():
            out.rmdir()  # it was checked to be empty
        part.rename(out)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def _write(
    part: Path,
    model: Any,
    write_tokenizer: Callable[[Path], Any],
    result: dict[str, Any],
    log: list[Line],
) -> None:
    from transformers.utils import logging

    logging.disable_progress_bar()
    model.cpu().save_pretrained(part)
    write_tokenizer(part)
    (part / "generation_config.json").unlink(missing_ok=True)  # no code reads it
    if log:
        with (part / "train_log.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(log[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(log)
    (part / "result.json").write_text(json.dumps(result, indent=2) + "\n")


def result(recipe: Recipe, facts: dict[str, Any]) -> dict[str, Any]:
    """Return the content of result.json; it has names instead of paths."""
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


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that affect the weights."""
    import tokenizers
    import torch
    import transformers

    packages = (torch, transformers, tokenizers)
    found = {module.__name__: str(module.__version__) for module in packages}
    return {"python": platform.python_version(), **found}
