"""Heads that begin as one that was trained: EFL's, as that of an NLI model."""

import logging

import torch

from ptrun.errors import UserError
from ptrun.method.base import Method
from ptrun.readout.entailment_head import EntailmentHead

_LOG = logging.getLogger(__name__)


def begin_head(method: Method) -> bool:
    """Put the backbone's classifier in place of an entailment head, if there are both; tell so.

    Raises:
        UserError: the checkpoint says it has one, and its files lack it.
    """
    head = method.readout
    if not isinstance(head, EntailmentHead) or head.classifier is None:
        return False
    backbone = method.backbone
    folder = backbone.tuned.file.parent if backbone.tuned else backbone.folder
    assert folder is not None  # it is loaded
    tensors = head.classifier.tensors(folder)
    own = dict(head.named_parameters())
    if lost := sorted(own.keys() - tensors.keys()):
        raise UserError(
            f"backbone={backbone.name}: its configuration names a classification head, but "
            f"its files lack {lost[0]} of it; type method.pooler=none for a new head."
        )
    with torch.no_grad():
        for name, tensor in tensors.items():
            own[name].copy_(tensor)
    others = [label for i, label in enumerate(head.classifier.labels) if i != head.entailed]
    _LOG.info(
        "the head begins as %s: %s against %s",
        head.classifier.origin,
        head.classifier.labels[head.entailed],
        ", ".join(others),
    )
    return True
