"""Read-outs of ELECTRA's own head: class words in a row or down a tree, or a passage."""

from collections.abc import Mapping
from typing import Any

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.prompt.pvp import PVP
from ptrun.readout.base import Readout
from ptrun.readout.class_tree import ClassTree
from ptrun.readout.class_words import ClassWords, ordered
from ptrun.readout.multispan.words import PassageWords
from ptrun.readout.patterns import choose
from ptrun.readout.reading import Reading
from ptrun.readout.tree import Tree, made_tree, read_tree
from ptrun.task.base import Task

_CLASSES = {
    "pattern": None,
    "class_bias": False,
    "class_loss": "mean",
    "class_order": "written",
    "class_marker": False,
    "class_tree": None,
    "fan_out": None,
    "beam": 1,
}
_PASSAGE = {"threshold": 0.6, "threshold_on": "sigma"}
"""The keys that only class words, or only a passage, have, with their defaults."""


def original_words(
    backbone: PretrainedBackbone, task: Task, reading: Reading, *, soft: bool
) -> Readout:
    """Return the read-out of `class_words`; `soft` as in `ptrun.readout.choose`.

    Raises:
        UserError: the backbone is no ELECTRA, no pattern or tree suits, or a key does not apply.
    """
    if backbone.config["model_type"] != "electra":
        raise UserError(
            f"backbone={backbone.name} has no head that detects replaced words, which "
            "method.readout=class_words needs; use backbone=electra_base or another ELECTRA."
        )
    keys: dict[str, Any] = {"score_direction": "one_minus_sigma", **_CLASSES, **_PASSAGE, **reading}
    direction = keys["score_direction"]
    if task.kind == "multispan":
        _refuse(keys, _CLASSES, f"task={task.name} has no classes, but a passage")
        border, on = keys["threshold"], keys["threshold_on"]
        return PassageWords(backbone, task, direction=direction, threshold=border, on=on)
    _refuse(keys, _PASSAGE, f"task={task.name} has classes, and one is predicted")
    pvp = choose(task, backbone.family, soft=soft, name=keys["pattern"], listed=True)
    tree = _tree(task, pvp, keys)
    options = {"direction": direction, "bias": keys["class_bias"], "share": keys["class_loss"]}
    options["marker"] = keys["class_marker"]
    if tree is None or not any(tree.values()):  # one level: a list
        order = keys["class_order"] if tree is None else list(tree)
        return ClassWords(backbone, task, pvp, order=order, **options)
    return ClassTree(backbone, task, pvp, tree, beam=keys["beam"], **options)


def _tree(task: Task, pvp: PVP, keys: Mapping[str, Any]) -> Tree | None:
    """Return the tree of classes: the configured one, one made with `fan_out`, or None."""
    tree, fan_out, order = keys["class_tree"], keys["fan_out"], keys["class_order"]
    if tree is None and fan_out is None:
        return None
    if tree is None:
        words = ordered(pvp.words or {}, order)
        return made_tree({label: own[0] for label, own in words.items()}, fan_out)
    if fan_out is not None or order != "written":
        other = "fan_out" if fan_out is not None else "class_order"
        raise UserError(
            f"method.{other} sets an order of classes, but method.class_tree has its own; "
            f"leave method.{other} out."
        )
    return read_tree(tree, task.labels)


def _refuse(keys: Mapping[str, Any], defaults: Mapping[str, Any], reason: str) -> None:
    """Refuse keys that differ from their defaults."""
    for key, default in defaults.items():
        if keys[key] != default:
            raise UserError(f"method.{key}={keys[key]}: {reason}; leave it out.")
