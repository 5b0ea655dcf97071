"""Starts EFL's entailment head from the trained head of an NLI model."""

import logging

import torch

from ptrun.errors import UserError
from ptrun.method.base import Method
from ptrun.readout.entailment_head import EntailmentHead

_LOG = logging.getLogger(__name__)


def begin_head(method: Method) -> bool:
    """Copy the backbone's classifier into an entailment head; return False if one is missing.

    Raises:
        UserError: the checkpoint's configuration names a classifier that its files lack.
    """
    head = method.readout
    if not isinstance(head, EntailmentHead) or head.classifier is None:
        return False
    backbone = method.backbone
    folder = backbone.tuned.file.parent if backbone.tuned else backbone.folder
    assert folder is not None  # it is loaded
    tensors = head.classifier.tensors(folder)
    parameters = dict(head.named_parameters())
    if lost := sorted(parameters.keys() - tensors.keys()):
        raise UserError(
            f"backbone={backbone.name}: its configuration names a classification head, but its "
            f"files lack {lost[0]}; type readout.pooler=none for a new head."
        )
    with torch.no_grad():
        for name, tensor in tensors.items():
            parameters[name].copy_(tensor)
    others = [label for i, label in enumerate(head.classifier.labels) if i != head.entailed]
    _LOG.info(
        "the head starts from %s: %s against %s",
        head.classifier.origin,
        head.classifier.labels[head.entailed],
        ", ".join(others),
    )
    return True
