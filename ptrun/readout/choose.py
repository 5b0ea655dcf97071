"""The read-out of a method on a kind of task: a linear head, or the language-model head."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypedDict

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.prompt.pvp import PVP
from ptrun.readout.base import Readout
from ptrun.readout.candidates import Candidates, Objective, Scored
from ptrun.readout.choice_head import ChoiceHead, EntityHead
from ptrun.readout.class_tree import ClassTree
from ptrun.readout.class_words import ClassWords, Direction, Order, Share, ordered
from ptrun.readout.entailment_head import EntailmentHead, described
from ptrun.readout.fact_words import FactWords
from ptrun.readout.fill import Fill
from ptrun.readout.label_words import Among, LabelWords
from ptrun.readout.multi_head import MultiHead
from ptrun.readout.multispan_tags import TagHead
from ptrun.readout.multispan_words import PassageWords
from ptrun.readout.patterns import choose
from ptrun.readout.pooled_head import LabelHead, NumberHead, Pooler
from ptrun.readout.span_head import SpanHead
from ptrun.readout.token_head import TokenHead
from ptrun.readout.tree import Tree, made_tree, read_tree
from ptrun.task.base import Task
from ptrun.task.multi import Multi

_POOLED: dict[str, Callable[..., Readout]] = {
    "classification": LabelHead,
    "span_check": LabelHead,
    "regression": NumberHead,
    "choice": ChoiceHead,
    "entity_choice": EntityHead,
}
_PLAIN: dict[str, Callable[..., Readout]] = {
    "tagging": TokenHead,
    "extraction": SpanHead,
    "multispan": TagHead,
}
KINDS = {
    "head": (*_POOLED, *_PLAIN),
    "verbalizer": ("classification", "choice", "entity_choice", "span_check", "facts"),
    "entailment": ("classification",),
    "class_words": ("classification", "multispan"),
}
"""Kinds of task by the read-out that answers them."""
_PATTERNED = ("verbalizer", "class_words")
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


class Reading(TypedDict, total=False):
    """The keys by which every method says how it reads an answer.

    `readout` is `head`, a linear map of hidden states that is learned; `entailment`, one that tells
    whether a label's description is entailed; `verbalizer`, words through the frozen language-model
    head; or `class_words`, ELECTRA's own head where all classes are written out; on multi-span
    questions, where nothing is, over the words of the passage. For heads: `pooler`
    (`ptrun.readout.pooled_head`). For the last two: `pattern`, one of the task's by name, null for
    the first that suits. For class words: `score_direction`, `class_bias`, `class_loss`,
    `class_order` (`ptrun.readout.class_words`); where there are too many for a row `class_tree`
    (@FILE or the tree itself) or `fan_out`, with `beam` (`ptrun.readout.class_tree`); of a passage
    `threshold`, `threshold_on` (`ptrun.readout.multispan_words`). For verbalizers: `among`
    (`ptrun.readout.label_words`; auto is vocabulary for encoder-decoders, else labels) and `closed`
    (the same); `objective`, `scored` and `swapped` (`ptrun.readout.candidates`); `sentinel`
    (`ptrun.readout.cloze`); `shifted_label` (`ptrun.readout.fact_words`).
    """

    readout: Literal["head", "verbalizer", "entailment", "class_words"]
    pooler: Pooler
    pattern: str | None
    among: Among | Literal["auto"]
    closed: bool
    objective: Objective
    scored: Scored
    swapped: bool
    sentinel: bool
    shifted_label: bool
    score_direction: Direction
    class_bias: bool
    class_loss: Share
    class_order: Order
    threshold: float
    threshold_on: Direction
    class_tree: str | dict[str, Any] | list[Any] | None
    fan_out: int | None
    beam: int


def check(
    backbone: PretrainedBackbone,
    task: Task,
    reading: Reading,
    *,
    soft: bool,
    offered: Sequence[str] = tuple(KINDS),
) -> None:
    """Refuse what cannot be read, from names and sizes alone; `offered` are the method's read-outs.

    Raises:
        UserError: the kind of task has no such read-out, the backbone has no words, or no pattern
            suits.
    """
    chosen = reading.get("readout", "head")
    if isinstance(task, Multi):
        _check_multi(backbone, task, reading)
        return
    if task.kind not in KINDS[chosen]:
        raise UserError(
            f"method.readout={chosen} cannot answer task={task.name}, which is {task.kind}; "
            f"{_hint(task.kind, offered)}."
        )
    if chosen not in _PATTERNED and reading.get("pattern") is not None:
        raise UserError(
            f"method.pattern={reading['pattern']}: method.readout={chosen} reads no pattern; "
            "leave it out, or type method.readout=verbalizer."
        )
    if chosen == "entailment":
        described(task)
    if chosen == "class_words":
        _class_words(backbone, task, reading, soft=soft)
    if chosen == "verbalizer":
        pvp = _pvp(backbone, task, reading, soft=soft)
        _check_words(backbone, task, pvp)
        _check_among(pvp, reading)
        _check_closed(backbone, task, pvp, reading)


def readout_for(
    backbone: PretrainedBackbone, task: Task, reading: Reading, *, soft: bool
) -> Readout:
    """Return the read-out; `soft` says whether the pattern has learned vectors.

    Raises:
        UserError: as `check`.
    """
    check(backbone, task, reading, soft=soft)
    if isinstance(task, Multi):
        heads = {n: readout_for(backbone, t, reading, soft=soft) for n, t in task.tasks.items()}
        return MultiHead(heads)
    if reading.get("readout", "head") == "verbalizer":
        return _verbalizer(backbone, task, reading, _pvp(backbone, task, reading, soft=soft))
    if reading.get("readout") == "class_words":
        return _class_words(backbone, task, reading, soft=soft)
    if reading.get("readout") == "entailment":
        return EntailmentHead(backbone, task, reading.get("pooler", "auto"))
    if task.kind in _PLAIN:
        return _PLAIN[task.kind](backbone, task)
    return _POOLED[task.kind](backbone, task, reading.get("pooler", "auto"))


def _hint(kind: str, offered: Sequence[str]) -> str:
    """Return what to type instead of a read-out that does not answer a kind of task."""
    fit = [name for name, kinds in KINDS.items() if kind in kinds]
    own = [name for name in fit if name in offered]
    return f"type {'' if own else 'method=fine_tuning '}method.readout={(own or fit)[0]}"


def _check_multi(backbone: PretrainedBackbone, task: Multi, reading: Reading) -> None:
    """Refuse read-outs whose states differ between data sets."""
    for own in task.tasks.values():
        check(backbone, own, reading, soft=False)
    pooled = [name for name, own in task.tasks.items() if own.kind in _POOLED]
    if reading.get("readout", "head") != "head":
        raise UserError(f"task={task.name} is several tasks in one; use method.readout=head.")
    if backbone.family == "seq2seq" and 0 < len(pooled) < len(task.tasks):
        raise UserError(
            f"task={task.name} cannot be learned on an encoder-decoder: its decoder answers "
            f"{', '.join(pooled)}, its encoder the others; use tasks of one sort."
        )
    if pooled and reading.get("pooler", "auto") not in ("none", "trainable"):
        raise UserError(
            f"task={task.name} is several tasks in one, of which {', '.join(pooled)} would read a "
            "pooler; use method.pooler=none or trainable."
        )


def _verbalizer(backbone: PretrainedBackbone, task: Task, reading: Reading, pvp: PVP) -> Readout:
    sentinel = reading.get("sentinel", True)
    if task.kind == "facts":
        shifted = reading.get("shifted_label", False)
        return FactWords(backbone, task, pvp, sentinel=sentinel, shifted_label=shifted)
    if pvp.verbalizer(1 if task.kind == "choice" else 0) is not None:
        among, closed = _among(backbone, reading), reading.get("closed", False)
        return LabelWords(backbone, task, pvp, among=among, sentinel=sentinel, closed=closed)
    if task.kind == "span_check":
        return Fill(backbone, task, pvp)
    return Candidates(
        backbone,
        task,
        pvp,
        objective=reading.get("objective", "margin"),
        scored=reading.get("scored", "sum"),
        swapped=reading.get("swapped", False),
    )


def _class_words(
    backbone: PretrainedBackbone, task: Task, reading: Reading, *, soft: bool
) -> Readout:
    if backbone.config["model_type"] != "electra":
        raise UserError(
            f"backbone={backbone.name} has no head that tells real words from replaced ones, which "
            "method.readout=class_words reads; use backbone=electra_base or another ELECTRA."
        )
    if task.kind == "multispan":
        return _passage_words(backbone, task, reading)
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


def _passage_words(backbone: PretrainedBackbone, task: Task, reading: Reading) -> Readout:
    asked = {key: reading.get(key, plain) for key, plain in _CLASSES_ALONE.items()}
    for key, value in asked.items():
        if value != _CLASSES_ALONE[key]:
            raise UserError(
                f"method.{key}={value}: task={task.name} has no classes, the words of its passage "
                "are read; leave it out."
            )
    return PassageWords(
        backbone,
        task,
        direction=reading.get("score_direction", "one_minus_sigma"),
        threshold=reading.get("threshold", 0.6),
        on=reading.get("threshold_on", "sigma"),
    )


def _pvp(backbone: PretrainedBackbone, task: Task, reading: Reading, *, soft: bool) -> PVP:
    return choose(task, backbone.family, soft=soft, name=reading.get("pattern"))


def _check_words(backbone: PretrainedBackbone, task: Task, pvp: PVP) -> None:
    if not backbone.writes_words:
        raise UserError(
            f"backbone={backbone.name} has no language-model head (it tells real words from "
            "replaced ones); use method.readout=head or another backbone."
        )
    if task.kind == "span_check" and backbone.family != "masked":
        raise UserError(
            f"task={task.name} is answered by filling masks, which {backbone.name} "
            f"({backbone.family}) does not have; use method.readout=head."
        )
    if task.kind == "classification" and pvp.words is None:
        words = ", ".join(f"{label}: [WORD]" for label in task.labels[:3])
        words += ", ..." if len(task.labels) > 3 else ""
        raise UserError(
            f"pattern {pvp.name} of task={task.name} has no label words; write into its YAML "
            f"(task=csv: task.pattern=@FILE)\nwords: {{{words}}}."
        )


def _check_among(pvp: PVP, reading: Reading) -> None:
    """Refuse one word of the vocabulary as the answer where several masks are read."""
    if reading.get("among") == "vocabulary" and (pvp.rule == "mean" or pvp.pattern.masks > 1):
        raise UserError(
            f"method.among=vocabulary reads one token, but pattern {pvp.name} reads several masks; "
            "type method.among=labels, or name another method.pattern."
        )


def _among(backbone: PretrainedBackbone, reading: Reading) -> Among:
    """Return what `method.among` says, or else what suits the family."""
    among = reading.get("among", "auto")
    if among == "auto":
        return "vocabulary" if backbone.family == "seq2seq" else "labels"
    return among


def _check_closed(backbone: PretrainedBackbone, task: Task, pvp: PVP, reading: Reading) -> None:
    """Refuse a target that ends in a sentinel where the answer has none before it."""
    words = pvp.verbalizer(1 if task.kind == "choice" else 0) is not None and task.kind != "facts"
    marked = backbone.family == "seq2seq" and reading.get("sentinel", True)
    if reading.get("closed") and not (
        words and marked and _among(backbone, reading) == "vocabulary"
    ):
        raise UserError(
            "method.closed=true ends an answer among all words with a sentinel: it needs an "
            "encoder-decoder, label\nwords or letters, method.among=vocabulary and "
            "method.sentinel=true; type method.closed=false."
        )
