"""Signs that a run does not learn what was meant, before and in training, with remedies."""

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from math import sqrt
from statistics import fmean
from typing import Any

from ptrun.backbone.files import SHIPPED
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.files import read_json
from ptrun.method.base import Method
from ptrun.readout.base import Features
from ptrun.readout.head import row_limit
from ptrun.task.dataset import Task
from ptrun.types import SIGNS, Example, Prediction

_FAR = 100  # times the usual rate, or less than its hundredth part
_CUT = 0.1  # of the texts
_READ = 1000  # texts, of up to millions


def doubts(
    method: Method, train: Sequence[Features], rate: float, usual: Mapping[str, float]
) -> list[str]:
    """Return the warnings about a run: its method, encoded training examples and `train.lr`.

    `usual` holds the learning rates of the backbone's file by what is trained.
    """
    readout, examples = method.readout, list(islice(train, _READ))
    warnings = [toy(method.backbone, method.task), unread_mean(method)]
    if not readout.windows and not readout.texts_before:
        warnings.append(cut_texts(examples, method.task, method.room()))
    warnings.append(readout.doubt(examples))
    cut = sum(example.facts.get("cut", False) for example in examples) if readout.writes else 0
    if cut:
        warnings.append(
            f"{cut} of {len(examples)} answers are cut and learned without their end; type "
            "readout.max_new_tokens=N for longer ones"
        )
    if method.learned():
        warnings.append(far_rate(rate, usual, tunes=method.tunes_backbone))
    return [text for text in warnings if text]


def toy(backbone: PretrainedBackbone, task: Task) -> str | None:
    """Return a warning if a shipped toy model reads real text."""
    shipped = backbone.folder is not None and backbone.folder.is_relative_to(SHIPPED)
    if not shipped or task.name.startswith(("pocket_", "ppt_")):
        return None
    return (
        f"backbone={backbone.name} is a toy that knows a small generated world, so scores on "
        f"task={task.name} will be low; type backbone=NAME for a real model (ptrun list backbone), "
        "or backbone.path=FOLDER"
    )


def unread_mean(method: Method) -> str | None:
    """Return a warning if a head reads one token of a model that was trained for their mean."""
    backbone, pooler = method.backbone, method.readout.pooler or "mean"
    if pooler == "mean" or backbone.folder is None:
        return None
    try:  # the sentence-transformers library writes it for sentence embeddings
        content = read_json(backbone.folder / "1_Pooling" / "config.json", links=True)
        trained_for_mean = content["pooling_mode_mean_tokens"] is True
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        return None
    if not trained_for_mean:
        return None
    return (
        f"backbone={backbone.name} was trained for the mean of its tokens, and "
        f"readout.pooler={pooler} reads one; try readout.pooler=mean"
    )


def far_rate(rate: float, usual: Mapping[str, float], *, tunes: bool) -> str | None:
    """Return a warning if a rate is 100 times above or below the backbone's usual rates.

    `usual` are those of the backbone's file, for `prompt`, `encoder` and `full`.
    """
    rates = [value for key, value in usual.items() if (key == "full") is tunes]
    if not rates or min(rates) / _FAR < rate < max(rates) * _FAR:
        return None
    side, near = ("above", max(rates)) if rate > max(rates) else ("below", min(rates))
    return f"train.lr={rate:g} is far {side} the usual rate of this backbone; try train.lr={near:g}"


def cut_texts(examples: Sequence[Features], task: Task, room: int) -> str | None:
    """Return a warning if more than 10 % of texts fill the limit: of the task, or `room`."""
    limit = row_limit(task, room)
    full = sum(any(len(row.ids) >= limit for row in example.rows) for example in examples)
    if full <= _CUT * len(examples):
        return None
    remedy = f"up to {room} fit: type task.max_tokens=N"
    if limit == room:
        remedy = "the backbone has no more positions for them"
    return (
        f"{full} of {len(examples)} texts fill the limit of {limit} tokens and may be cut; {remedy}"
    )


_SHOWN = 6


def words_in_pieces(readout: Any, task: Task) -> str | None:
    """Return a warning that names the label words in pieces, or None if all are whole.

    The first word of a name such as `science and technology` counts. Words that are read whole
    (`rule: mean`), and words that are only written beside a letter, are left out.
    """
    if (verbalizer := readout.first_words()) is None:
        return None
    from ptrun.pattern.spelling import Spelling

    spelling = Spelling(readout.backbone.tokenizer())
    spelled = [
        (label, word, spelling.answer(word.split()[0], glued=verbalizer.glued))
        for label, words in verbalizer.words.items()
        for word in words
    ]
    cut = [(label, word, spelling.tokens(ids)) for label, word, ids in spelled if len(ids) > 1]
    if not cut:
        return None
    label, *_ = cut[0]
    where = f"change it in {task.pvps_from}"
    if task.pvps_from is None:
        where = f"type task.pvps.{readout.pvp.name}.words.{label}=[WORD]"
    shown = ", ".join(f"{word} ({' '.join(pieces)})" for _, word, pieces in cut[:_SHOWN])
    more = f" and {len(cut) - _SHOWN} more" if len(cut) > _SHOWN else ""
    return (
        f"the vocabulary of backbone={readout.backbone.name} cuts label words into pieces, and "
        f"only the first piece is read: {shown}{more}. To use a whole word, {where}"
    )


_LEAST_STEPS = 40  # below, the loss of a tenth of the steps is noise
_IN_A_ROW = 3  # evaluations with one answer
_LEAST_ANSWERS = 10
_MOVED = 0.02  # of the loss at the start
_SMALL = 0.05  # a loss at the start below this has little left to lose
_ROSE = 2.0  # times the loss at the start
_STILL, _HIGHER, _ALIKE, _CHANCE = SIGNS
_LEAST_DEV = 100  # below, chance spans 15 points
_ERRORS = 3  # standard errors above the most frequent label


class Health:
    """Watches the losses and dev answers of one member.

    A resumed member has its earlier losses from the journal; if some are lost there, nothing is
    said about the loss. A relation of facts may have one right answer: `compares` is then false.
    """

    compares = True

    def __init__(self) -> None:
        self.losses = array("d")
        self.alike = 0  # evaluations in a row with one answer
        self._said = False

    def step(self, loss: float) -> None:
        """Record the loss of a step that was taken."""
        self.losses.append(loss)

    def judge(self, predictions: Sequence[Prediction]) -> str | None:
        """Record the dev answers of an evaluation; return a warning at the third of one answer."""
        self.alike = self.alike + 1 if self.compares and one_answer(predictions) else 0
        if self.alike != _IN_A_ROW or self._said:
            return None
        self._said = True
        return f"all dev answers were the same in {_IN_A_ROW} evaluations; {_REMEDY}"

    def findings(self, steps: int) -> list[str]:
        """Return the warnings at the end of `steps` steps."""
        warnings = [f"{_ALIKE}; {_REMEDY}"] if self.alike else []
        if steps != len(self.losses) or steps < _LEAST_STEPS:
            return warnings
        size, begin = steps // 10, self.losses[0]
        start, last = fmean(self.losses[:size]), fmean(self.losses[-size:])
        if last > _ROSE * begin and last > _SMALL:
            text = f"{_HIGHER} from {begin:.4g} to {last:.4g}; try a lower train.lr"
            return [*warnings, text]
        if abs(start - last) < _MOVED * start and start > _SMALL:
            told = f"from {start:.4g} in the first tenth of the steps to {last:.4g} in the last"
            text = f"{_STILL}, {told}; try a higher train.lr or more steps"
            return [*warnings, text]
        return warnings


def near_chance(dev: Sequence[Example], accuracy: float, steps: int) -> list[str]:
    """Return the warning if the best dev accuracy is within 3 errors of the most frequent label."""
    if len(dev) < _LEAST_DEV or steps < _LEAST_STEPS:
        return []
    share = max(Counter(example.target for example in dev).values()) / len(dev)
    if accuracy > 100 * (share + _ERRORS * sqrt(share * (1 - share) / len(dev))):
        return []
    return [f"{_CHANCE}: {accuracy:.2f}; the most frequent label has {100 * share:.2f}; {_REMEDY}"]


_REMEDY = "try another train.lr, more steps, or another seed, and look at ptrun check"


def one_answer(predictions: Sequence[Prediction]) -> bool:
    """Return whether at least ten predictions all have one value; tags are compared one by one.

    Texts that were not written have none.
    """
    if len(predictions) < _LEAST_ANSWERS or predictions[0].value is None:
        return False
    values = [p.value if isinstance(p.value, list) else [p.value] for p in predictions]
    return len({repr(value) for several in values for value in several}) == 1
