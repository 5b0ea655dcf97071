"""Chooses the read-out of a method on a task: a linear head, or the language-model head."""

from collections.abc import Callable, Sequence
from typing import Any

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.prompt.pvp import PVP
from ptrun.readout.base import Readout
from ptrun.readout.candidates import Candidates
from ptrun.readout.choice_head import ChoiceHead, EntityHead
from ptrun.readout.entailment_head import EntailmentHead, described
from ptrun.readout.fact_words import FactWords
from ptrun.readout.fill import Fill
from ptrun.readout.head import Head
from ptrun.readout.label_words import Among, LabelWords
from ptrun.readout.multi_head import MultiHead
from ptrun.readout.multispan.tags import TagHead
from ptrun.readout.one_row import OneRow
from ptrun.readout.original import original_words
from ptrun.readout.patterns import choose
from ptrun.readout.pooled_head import LabelHead, NumberHead
from ptrun.readout.reading import Reading
from ptrun.readout.span_head import SpanHead
from ptrun.readout.token_head import TokenHead
from ptrun.readout.written import Written
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
"""The kinds of task that each read-out supports."""
_FILLS: dict[str, Callable[..., Readout]] = {"masked": Fill, "infilling": Written}
_PATTERNED = ("verbalizer", "class_words")


def check(
    backbone: PretrainedBackbone,
    task: Task,
    reading: Reading,
    *,
    soft: bool,
    offered: Sequence[str] = tuple(KINDS),
) -> None:
    """Refuse invalid combinations without loading weights; `offered` are the method's read-outs.

    Raises:
        UserError: the read-out does not support the kind of task, the backbone predicts no words,
            or no pattern suits.
    """
    chosen = reading.get("readout", "head")
    _check_released(backbone, task, reading, soft=soft)
    if isinstance(task, Multi):
        _check_multi(backbone, task, reading)
        return
    if task.kind not in KINDS[chosen]:
        raise UserError(
            f"method.readout={chosen} cannot answer task={task.name}, which is {task.kind}; "
            f"{_hint(task.kind, offered)}."
        )
    _check_dropout(chosen, reading.get("head_dropout"))
    _check_mean(task, chosen, reading)
    if chosen not in _PATTERNED and reading.get("pattern") is not None:
        raise UserError(
            f"method.pattern={reading['pattern']}: method.readout={chosen} has no pattern; "
            "leave it out, or type method.readout=verbalizer."
        )
    if chosen == "entailment":
        described(task)
    if chosen == "class_words":
        original_words(backbone, task, reading, soft=soft)
    if chosen == "verbalizer":
        pvp = choose(task, backbone.family, soft=soft, name=reading.get("pattern"))
        _check_words(backbone, task, pvp)
        _check_among(pvp, reading)
        _check_closed(backbone, task, pvp, reading)
        _check_batch_margin(backbone, task, pvp, reading)


def readout_for(
    backbone: PretrainedBackbone, task: Task, reading: Reading, *, soft: bool
) -> Readout:
    """Return the read-out; `soft` says whether the pattern has learned vectors.

    Raises:
        UserError: as `check`.
    """
    check(backbone, task, reading, soft=soft)
    readout, dropout = _made(backbone, task, reading, soft=soft), reading.get("head_dropout")
    if isinstance(readout, Head) and dropout is not None:
        readout.dropout = dropout
    return readout


def _made(backbone: PretrainedBackbone, task: Task, reading: Reading, *, soft: bool) -> Readout:
    if isinstance(task, Multi):
        heads = {
            name: readout_for(backbone, own, _own(own, reading), soft=soft)
            for name, own in task.tasks.items()
        }
        return MultiHead(heads)
    if reading.get("readout", "head") == "verbalizer":
        pvp = choose(task, backbone.family, soft=soft, name=reading.get("pattern"))
        return _verbalizer(backbone, task, reading, pvp)
    if reading.get("readout") == "class_words":
        return original_words(backbone, task, reading, soft=soft)
    if reading.get("readout") == "entailment":
        return EntailmentHead(backbone, task, reading.get("pooler", "auto"))
    if task.kind == "tagging":
        return TokenHead(backbone, task, literal_sep=reading.get("literal_sep", False))
    if task.kind in _PLAIN:
        return _PLAIN[task.kind](backbone, task)
    return _POOLED[task.kind](backbone, task, reading.get("pooler", "auto"))


def _check_dropout(chosen: str, dropout: float | None) -> None:
    if dropout is not None and chosen in _PATTERNED:
        raise UserError(
            f"method.head_dropout={dropout}: method.readout={chosen} has no head that is learned; "
            "leave it out, or type method.readout=head."
        )
    if dropout is not None and not 0 <= dropout < 1:
        raise UserError(f"method.head_dropout is {dropout}; use 0 or more, and less than 1.")


def _check_mean(task: Task, chosen: str, reading: Reading) -> None:
    """Refuse the mean where no vector of a text is read."""
    pooled = chosen == "entailment" or (chosen == "head" and task.kind in _POOLED)
    if reading.get("pooler") == "mean" and not pooled:
        raise UserError(
            f"method.pooler=mean: method.readout={chosen} on task={task.name}, which is "
            f"{task.kind}, reads no vector of the whole text; leave it out."
        )


def _hint(kind: str, offered: Sequence[str]) -> str:
    """Return the overrides to type for a read-out that supports a kind of task."""
    fit = [name for name, kinds in KINDS.items() if kind in kinds]
    own = [name for name in fit if name in offered]
    return f"type {'' if own else 'method=fine_tuning '}method.readout={(own or fit)[0]}"


def _check_multi(backbone: PretrainedBackbone, task: Multi, reading: Reading) -> None:
    """Refuse read-outs that need different states for different data sets."""
    for own in task.tasks.values():
        check(backbone, own, _own(own, reading), soft=False)
    pooled = [name for name, own in task.tasks.items() if own.kind in _POOLED]
    if reading.get("readout", "head") != "head":
        raise UserError(f"task={task.name} is several tasks in one; use method.readout=head.")
    pooler, mixed = reading.get("pooler", "auto"), 0 < len(pooled) < len(task.tasks)
    if backbone.family == "seq2seq" and mixed and pooler != "mean":
        raise UserError(
            f"task={task.name} cannot run on an encoder-decoder: {', '.join(pooled)} are read in "
            "its decoder, the others in its encoder; use method.pooler=mean or tasks of one kind."
        )
    if pooled and pooler in ("auto", "frozen"):
        raise UserError(
            f"task={task.name} is several tasks in one, and {', '.join(pooled)} would use a "
            "pooler; use method.pooler=none, trainable or mean."
        )


def _own(task: Task, reading: Reading) -> Reading:
    """Return the keys for one of several tasks: `pooler` is for those that have one."""
    return reading if task.kind in _POOLED else {**reading, "pooler": "none"}


def _verbalizer(backbone: PretrainedBackbone, task: Task, reading: Reading, pvp: PVP) -> Readout:
    def configured(*keys: str) -> Any:
        return {key: value for key, value in reading.items() if key in keys}

    if task.kind == "facts":
        options = configured("sentinel", "literal_sep", "shifted_label", "released_query")
        return FactWords(backbone, task, pvp, **options)
    if _has_label_words(task, pvp):
        among, closed = _among(backbone, reading), _closed(backbone, reading)
        options = configured("sentinel", "literal_sep")
        return LabelWords(backbone, task, pvp, among=among, closed=closed, **options)
    if task.kind == "span_check":
        options = configured("literal_sep", "random_masks")
        return _FILLS[backbone.family](backbone, task, pvp, **options)
    made = OneRow if reading.get("objective") == "batch_margin" else Candidates
    options = configured("literal_sep", "objective", "scored", "swapped")
    return made(backbone, task, pvp, **options)


def _has_label_words(task: Task, pvp: PVP) -> bool:
    """Return whether label words or option letters are predicted, not texts of the example."""
    return pvp.verbalizer(1 if task.kind == "choice" else 0) is not None and task.kind != "facts"


def _check_released(
    backbone: PretrainedBackbone, task: Task, reading: Reading, *, soft: bool
) -> None:
    """Refuse `released_query` where it does not apply."""
    if not reading.get("released_query", False):
        return
    if soft:
        raise UserError(
            "method.released_query=true needs a written template; with learned vectors the "
            "released code's query is the default one: leave it out."
        )
    if task.kind != "facts" or backbone.family not in ("masked", "causal"):
        raise UserError(
            "method.released_query=true needs facts (task=lama) and a masked or left-to-right "
            f"backbone; task={task.name} is\n{task.kind}, backbone={backbone.name} is "
            f"{backbone.family}: leave it out."
        )


def _check_batch_margin(
    backbone: PretrainedBackbone, task: Task, pvp: PVP, reading: Reading
) -> None:
    """Refuse one row for all options where each answer has its own tokens after it."""
    if reading.get("objective") != "batch_margin" or _has_label_words(task, pvp):
        return
    if task.kind == "entity_choice" or (task.kind == "choice" and backbone.family != "masked"):
        raise UserError(
            "method.objective=batch_margin needs options as texts (task=copa) and a masked "
            f"backbone; task={task.name} is {task.kind},\nbackbone={backbone.name} is "
            f"{backbone.family}: type method.objective=margin."
        )


def _check_words(backbone: PretrainedBackbone, task: Task, pvp: PVP) -> None:
    if not backbone.writes_words:
        raise UserError(
            f"backbone={backbone.name} has no language-model head (its head detects replaced "
            "words); use method.readout=head or another backbone."
        )
    if task.kind == "span_check" and backbone.family not in _FILLS:
        raise UserError(
            f"task={task.name} needs a backbone that fills masks, and {backbone.name} is "
            f"{backbone.family}; use method.readout=head."
        )
    if task.kind == "classification" and pvp.words is None:
        words = ", ".join(f"{label}: [WORD]" for label in task.labels[:3])
        words += ", ..." if len(task.labels) > 3 else ""
        raise UserError(
            f"pattern {pvp.name} of task={task.name} has no label words; write into its YAML "
            f"(task=csv: task.pattern=@FILE)\nwords: {{{words}}}."
        )


def _check_among(pvp: PVP, reading: Reading) -> None:
    """Refuse a softmax over the vocabulary if the pattern has several masks."""
    if reading.get("among") == "vocabulary" and (pvp.rule == "mean" or pvp.pattern.masks > 1):
        raise UserError(
            f"method.among=vocabulary reads one token, but pattern {pvp.name} reads several masks; "
            "type method.among=labels, or name another method.pattern."
        )


def _among(backbone: PretrainedBackbone, reading: Reading) -> Among:
    """Return `method.among`; auto depends on the family."""
    among, auto = reading.get("among", "auto"), backbone.family == "seq2seq"
    return ("vocabulary" if auto else "labels") if among == "auto" else among


def _closed(backbone: PretrainedBackbone, reading: Reading) -> bool:
    """Return `method.closed`; auto is true if there are sentinels."""
    closed = reading.get("closed", False)
    return _can_close(backbone, reading) if closed == "auto" else closed


def _can_close(backbone: PretrainedBackbone, reading: Reading) -> bool:
    marked = backbone.family == "seq2seq" and reading.get("sentinel", True)
    return marked and _among(backbone, reading) == "vocabulary"


def _check_closed(backbone: PretrainedBackbone, task: Task, pvp: PVP, reading: Reading) -> None:
    """Refuse a target that ends in a sentinel if no sentinel comes before the answer."""
    possible = _has_label_words(task, pvp) and _can_close(backbone, reading)
    if reading.get("closed") is True and not possible:
        raise UserError(
            "method.closed=true ends the target with a sentinel: it needs an encoder-decoder, "
            "label words or letters,\nmethod.among=vocabulary and method.sentinel=true; type "
            "method.closed=false."
        )
