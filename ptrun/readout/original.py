"""Read-outs of ELECTRA's own head: class words in a row or down a tree, or a passage."""

from collections.abc import Mapping
from typing import Any

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.prompt.pvp import PVP
from ptrun.readout.base import Readout
from ptrun.readout.class_tree import ClassTree
from ptrun.readout.class_words import ClassWords, ordered
from ptrun.readout.multispan_words import PassageWords
from ptrun.readout.patterns import choose
from ptrun.readout.reading import Reading
from ptrun.readout.tree import Tree, made_tree, read_tree
from ptrun.task.base import Task

_CLASSES_ALONE = {
    "pattern": None,
    "class_bias": False,
    "class_loss": "mean",
    "class_order": "written",
    "class_tree": None,
    "fan_out": None,
    "beam": 1,
}
"""Keys of class words that a passage does not have, with their defaults."""
_PASSAGE_ALONE = {"threshold": 0.6, "threshold_on": "sigma"}


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
    if task.kind == "multispan":
        return _passage_words(backbone, task, reading)
    _refuse(reading, _PASSAGE_ALONE, f"task={task.name} has classes, and one is predicted")
    name = reading.get("pattern")
    pvp = choose(task, backbone.family, soft=soft, name=name, listed=True)
    tree = _tree(task, pvp, reading)
    options: Any = {
        "direction": reading.get("score_direction", "one_minus_sigma"),
        "bias": reading.get("class_bias", False),
        "share": reading.get("class_loss", "mean"),
    }
    if tree is None or not any(tree.values()):  # one level: a list
        order = reading.get("class_order", "written") if tree is None else list(tree)
        return ClassWords(backbone, task, pvp, order=order, **options)
    return ClassTree(backbone, task, pvp, tree, beam=reading.get("beam", 1), **options)


def _tree(task: Task, pvp: PVP, reading: Reading) -> Tree | None:
    """Return the tree of classes: the configured one, one made with `fan_out`, or None."""
    tree, fan_out = reading.get("class_tree"), reading.get("fan_out")
    order = reading.get("class_order", "written")
    if tree is None and fan_out is None:
        return None
    if tree is None:
        words = ordered(pvp.words or {}, order)
        return made_tree({label: own[0] for label, own in words.items()}, fan_out or 0)
    if fan_out is not None or order != "written":
        other = "fan_out" if fan_out is not None else "class_order"
        raise UserError(
            f"method.{other} sets an order of classes, but method.class_tree has its own; "
            f"leave method.{other} out."
        )
    return read_tree(tree, task.labels)


def _refuse(reading: Reading, keys: Mapping[str, Any], reason: str) -> None:
    """Refuse keys that differ from their defaults."""
    for key, plain in keys.items():
        if reading.get(key, plain) != plain:
            raise UserError(f"method.{key}={reading.get(key)}: {reason}; leave it out.")


def _passage_words(backbone: PretrainedBackbone, task: Task, reading: Reading) -> Readout:
    _refuse(reading, _CLASSES_ALONE, f"task={task.name} has no classes, but a passage")
    return PassageWords(
        backbone,
        task,
        direction=reading.get("score_direction", "one_minus_sigma"),
        threshold=reading.get("threshold", 0.6),
        on=reading.get("threshold_on", "sigma"),
    )
