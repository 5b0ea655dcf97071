"""A run that begins over the backbone that another run tuned: supplementary training.

IDPG's rows that start from an MNLI model: `method=fine_tuning task=glue_mnli`, then `start=run:RUN`
with any method and task. The backbone is taken whole; a prompt and a head begin at random, but for
EFL's, which begins as that run's head where one of its rows is entailment. What stands over a
tuned backbone is bound to it: `weights` has a digest after `+`.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from ptrun.backbone.classifier import Classifier
from ptrun.backbone.tuned import PREFIX, Tuned
from ptrun.errors import UserError
from ptrun.run import result
from ptrun.run.saved_prompt import FILE

_HEAD = "readout."


def tuned_by(folder: Path, bound: Mapping[str, str]) -> Tuned | None:
    """Return the backbone a run tuned without a prompt; None where it tuned none, or has a prompt.

    Raises:
        UserError: it was another backbone, before any tuning.
    """
    file = folder / FILE
    try:
        with safe_open(file, "pt") as opened:
            names = sorted(opened.keys())
            made_with = json.loads(opened.metadata()["backbone"])
    except SafetensorError:  # damaged: told where its prompt is read
        return None
    if not any(n.startswith(PREFIX) for n in names) or any(n.startswith("prompt.") for n in names):
        return None
    if {**made_with, "weights": _first(made_with["weights"])} != dict(bound):
        raise UserError(
            f"start=run:{folder}: it tuned {made_with['name']} ({made_with['weights']}), not "
            f"{bound['name']} ({bound['weights']}); use that backbone, or another run."
        )
    return Tuned(file, _digest(file, names), _classifier(folder, names))


def _first(weights: str) -> str:
    """Return what identifies weights before runs tuned them: all that those moved is replaced."""
    return weights.partition("+")[0]


def _digest(file: Path, names: list[str]) -> str:
    """Return 16 hex over names, forms and values, the head's too."""
    hashed = hashlib.sha256()
    with safe_open(file, "pt") as opened:
        for name in names:
            tensor = opened.get_tensor(name)
            hashed.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
            hashed.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return hashed.hexdigest()[:16]


def _classifier(folder: Path, names: list[str]) -> Classifier | None:
    """Return a run's head, where the run tells what its rows mean."""
    done = result.read(folder)
    config: dict[str, Any] = dict(done.config) if done else {}
    labels, method = config.get("task", {}).get("labels"), config.get("method", {})
    if not labels or method.get("readout") != "head":
        return None
    parts = [part for part in ("linear", "dense") if f"{_HEAD}{part}.weight" in names]
    stored = {part: f"{_HEAD}{part}" for part in parts}
    return Classifier(list(labels), stored, method.get("pooler", "auto"), "that run's")
