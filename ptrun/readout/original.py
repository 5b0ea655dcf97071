"""What ELECTRA's own head reads: class words in a row or down a tree, or a passage."""

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
"""What class words have and a passage has not, as it is where nothing is asked for."""
_PASSAGE_ALONE = {"threshold": 0.6, "threshold_on": "sigma"}


def original_words(
    backbone: PretrainedBackbone, task: Task, reading: Reading, *, soft: bool
) -> Readout:
    """Return the read-out of `class_words`; `soft` as in `ptrun.readout.choose`.

    Raises:
        UserError: the backbone is no ELECTRA, no pattern or tree suits, or a key is not for this.
    """
    if backbone.config["model_type"] != "electra":
        raise UserError(
            f"backbone={backbone.name} has no head that tells real words from replaced ones, which "
            "method.readout=class_words reads; use backbone=electra_base or another ELECTRA."
        )
    if task.kind == "multispan":
        return _passage_words(backbone, task, reading)
    _refuse(reading, _PASSAGE_ALONE, f"task={task.name} has classes, of which one answers")
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
    """Return the tree of classes that was given or is to be made, or None."""
    given, fan_out = reading.get("class_tree"), reading.get("fan_out")
    order = reading.get("class_order", "written")
    if given is None and fan_out is None:
        return None
    if given is None:
        words = ordered(pvp.words or {}, order)
        return made_tree({label: own[0] for label, own in words.items()}, fan_out or 0)
    if fan_out is not None or order != "written":
        other = "fan_out" if fan_out is not None else "class_order"
        raise UserError(
            f"method.{other} makes a tree of its own order, and method.class_tree is one; "
            f"leave method.{other} out."
        )
    return read_tree(given, task.labels)


def _refuse(reading: Reading, keys: Mapping[str, Any], reason: str) -> None:
    """Refuse keys that are not as they are where nothing is asked for."""
    for key, plain in keys.items():
        if reading.get(key, plain) != plain:
            raise UserError(f"method.{key}={reading.get(key)}: {reason}; leave it out.")


def _passage_words(backbone: PretrainedBackbone, task: Task, reading: Reading) -> Readout:
    reason = f"task={task.name} has no classes, the words of its passage are read"
    _refuse(reading, _CLASSES_ALONE, reason)
    return PassageWords(
        backbone,
        task,
        direction=reading.get("score_direction", "one_minus_sigma"),
        threshold=reading.get("threshold", 0.6),
        on=reading.get("threshold_on", "sigma"),
    )
