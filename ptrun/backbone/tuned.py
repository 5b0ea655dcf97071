"""A backbone as a run tuned it: its tensors in that run's `prompt.safetensors`, its head beside."""

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
    """Where a run's tuned backbone is.

    Args:
        file: that run's tensors.
        digest: what identifies them, 16 hex.
        classifier: the head it was tuned with, if that gives the rows of labels.
    """

    file: Path
    digest: str
    classifier: Classifier | None = None

    def put(self, backbone: Any) -> None:
        """Copy the tensors into a loaded backbone; what that run did not tune stays.

        Raises:
            UserError: the backbone has no such tensors.
        """
        with safe_open(self.file, "pt") as opened, torch.no_grad():
            names = [n.removeprefix(PREFIX) for n in opened.keys() if n.startswith(PREFIX)]  # noqa: SIM118
            places = _places(backbone, names)
            for name in names:
                own = backbone.own(places[name], opened.get_slice(PREFIX + name))
                places[name].copy_(own)


def _places(backbone: Any, names: Sequence[str]) -> dict[str, nn.Parameter]:
    """Return the parameters of these names: of the body, or of the model with its output head."""
    for head in (False, True):
        known: dict[str, nn.Parameter] = backbone.body(head=head)
        if set(names) <= set(known):
            return known
    raise UserError(f"{backbone.name} lacks {sorted(set(names) - set(known))[0]}, which was tuned.")


def classifier_of(backbone: Any) -> Classifier | None:
    """Return the classification head a backbone was last tuned with, if one is known."""
    return backbone.tuned.classifier if backbone.tuned else of_config(backbone.config)
