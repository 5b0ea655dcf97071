"""A backbone that a run tuned: its tensors are in the `prompt.safetensors` of that run."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import nn

from ptrun.backbone.classifier import Classifier, of_config
from ptrun.errors import UserError

PREFIX = "backbone."


@dataclass(frozen=True)
class Tuned:
    """The tuned backbone of a run.

    Args:
        file: the tensors of the run.
        digest: identifier of the tensors, 16 hex digits.
        classifier: the head that was tuned with it, if its rows are labels.
        pooler_seed: the seed of the untrained pooler that was used with it.
    """

    file: Path
    digest: str
    classifier: Classifier | None = None
    pooler_seed: int | None = None

    def put(self, backbone: Any) -> None:
        """Copy the tuned tensors into a loaded backbone.

        Raises:
            UserError: the backbone lacks one of the tensors.
        """
        with safe_open(self.file, "pt") as opened, torch.no_grad():
            names = [n.removeprefix(PREFIX) for n in opened.keys() if n.startswith(PREFIX)]  # noqa: SIM118
            places = _places(backbone, names)
            for name in names:
                places[name].copy_(backbone.own(places[name], opened.get_slice(PREFIX + name)))


def _places(backbone: Any, names: Sequence[str]) -> dict[str, nn.Parameter]:
    """Return parameters with these names, from the body or from the model with its output head."""
    for head in (False, True):
        parameters: dict[str, nn.Parameter] = backbone.body(head=head)
        if set(names) <= set(parameters):
            return parameters
    missing = sorted(set(names) - set(parameters))
    raise UserError(f"{backbone.name} lacks {missing[0]}, which was tuned.")


def classifier_of(backbone: Any) -> Classifier | None:
    """Return the classification head that was last tuned with a backbone, or None."""
    return backbone.tuned.classifier if backbone.tuned else of_config(backbone.config)
