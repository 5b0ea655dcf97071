"""Start from a backbone that another run tuned: supplementary training.

IDPG uses it for the rows that start from an MNLI model: `method=fine_tuning task=glue_mnli`, then
`start=run:RUN` with any method and task. Prompt and head start at random. EFL's head starts from
the head of that run, if one of its rows is entailment. Files made over a tuned backbone are bound
to it: `weights` has its digest after `+`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import safe_open

from ptrun.backbone.classifier import Classifier
from ptrun.backbone.tuned import PREFIX, Tuned
from ptrun.errors import UserError
from ptrun.folder import result
from ptrun.folder import tensors as files
from ptrun.folder.header import PROMPT
from ptrun.runs.saved_prompt import tensor_digest
from ptrun.runs.store import made_over
from ptrun.types import RunResult

_HEAD = "readout."
_AGAIN = "Type the command of that run again with rerun=true, or start from another."


def tuned_by(folder: Path, bound: Mapping[str, str]) -> Tuned | None:
    """Return the backbone that a run tuned; None if it tuned none, or also learned a prompt.

    Raises:
        UserError: the file is damaged, or the run tuned another backbone.
    """
    file = folder / PROMPT
    with files.checked(file, _AGAIN) as (opened, header):
        names, made_with = sorted(opened.keys()), made_over(file, header)
    if not any(n.startswith(PREFIX) for n in names) or any(n.startswith("prompt.") for n in names):
        return None
    pretrained = made_with["weights"].partition("+")[0]  # tuning replaces all that it changed
    if {**made_with, "weights": pretrained} != dict(bound):
        raise UserError(
            f"start=run:{folder}: that run tuned {made_with['name']} ({made_with['weights']}), not "
            f"{bound['name']} ({bound['weights']}). Use that backbone, or another run."
        )
    files.check(file, _AGAIN)
    with safe_open(file, "pt") as opened:
        digest = tensor_digest((name, opened.get_tensor(name)) for name in names)
    done = result.read(folder)
    seed = done.manifest.get("backbone", {}).get("pooler_seed") if done else None
    return Tuned(file, digest, _classifier(done, names), seed)


def _classifier(done: RunResult | None, names: list[str]) -> Classifier | None:
    """Return the head of a run; None if it has none, or its labels are not recorded."""
    config: dict[str, Any] = dict(done.config) if done else {}
    labels, options = config.get("task", {}).get("labels"), done.names if done else {}
    if not labels or options.get("readout") != "head":
        return None
    parts = [part for part in ("linear", "dense") if f"{_HEAD}{part}.weight" in names]
    stored = {part: f"{_HEAD}{part}" for part in parts}
    return Classifier(list(labels), stored, config["readout"].get("pooler", "auto"), "that run's")
