"""The folder of a pre-trained backbone: configuration, fp16 weights, tokenizer, figures, log."""

import csv
import json
import platform
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ptrun.pocket.tasks import VERSION
from ptrun.pretrain.recipe import Recipe
from ptrun.pretrain.training import Line


def save(out: Path, model: Any, tokenizer: Any, result: dict[str, Any], log: list[Line]) -> None:
    """Write the folder, whole or not at all."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    part = out.with_name(f"{out.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    model.cpu().half().save_pretrained(part)
    tokenizer.save_pretrained(part)
    (part / "generation_config.json").unlink(missing_ok=True)  # nothing reads it
    if log:
        with (part / "train_log.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(log[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(log)
    (part / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    if out.exists():
        out.rmdir()  # it was checked to be empty
    part.rename(out)


def result(recipe: Recipe, facts: dict[str, Any]) -> dict[str, Any]:
    """Return what the folder says about its making: no paths, only names."""
    import tokenizers
    import torch
    import transformers

    plan = asdict(recipe) | {"corpus": Path(recipe.corpus).name}
    plan.pop("out")
    if recipe.generator is not None:
        plan["generator"] = Path(recipe.generator).name
    versions = {module.__name__: module.__version__ for module in (torch, transformers, tokenizers)}
    return {
        "model": recipe.name,
        "world_version": VERSION if recipe.corpus == "pocket" else None,
        "plan": plan,
        **facts,
        "versions": {"python": platform.python_version(), **versions},
    }
