"""A head that asks whether a text entails what is said of a label (EFL)."""

from collections.abc import Mapping, Sequence
from string import Formatter

import torch
from torch import Tensor

from ptrun.backbone.base import BackboneOutput
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.backbone.tuned import classifier_of
from ptrun.errors import UserError
from ptrun.readout.base import Batch, Features
from ptrun.readout.head import summed_up, texts
from ptrun.readout.pooled_head import PooledHead, Pooler
from ptrun.task.base import Task
from ptrun.types import Example, Prediction


class EntailmentHead(PooledHead):
    """Linear(H, C) a described label, entailed or not; the most entailed is the answer.

    Wang et al. 2021, Entailment as Few-Shot Learner: one row a label, (text, description), each a
    binary example of its own. A binary task may describe one label alone, as EFL asks it: the other
    is the answer where that one is not entailed. Where the text is a pair already, a description
    quotes one of its fields (`{hypothesis}`), and the fields it does not quote are the first text.
    Numbers cannot be asked for, so STS-B, which IDPG's row has, is out.

    Where the backbone was tuned with a head that has a row for entailment (an MNLI model, or a run
    that `start=run:` names), it has that head's rows and dense layer, and a run begins as them; the
    other rows' classes together are `not`, so the probability of entailment is that head's. A
    `pooler` that is none of that head's own, or a backbone without one: C is 2, begun at random.

    The authors' descriptions are not published with IDPG; those of the task files are ours.
    """

    def __init__(self, backbone: PretrainedBackbone, task: Task, pooler: Pooler = "auto"):
        known = classifier_of(backbone)
        if known is None or known.entailed is None or pooler not in ("auto", known.pooler):
            known = None
        size = len(known.labels) if known else 2
        super().__init__(backbone, task, size, known.pooler if known else pooler)  # type: ignore[arg-type]
        self.classifier = known
        self.entailed = known.entailed if known and known.entailed is not None else 1
        self.forms = described(task)

    def scores(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return `[K, 2]`, not entailed and entailed; several classes that are `not` are added."""
        own = super().scores(output, batch)
        others = [i for i in range(own.shape[1]) if i != self.entailed]
        return torch.stack([own[:, others].logsumexp(dim=1), own[:, self.entailed]], dim=1)

    def encode(self, examples: Sequence[Example], room: int) -> list[Features]:
        """Tokenize one row a description; the longer text of the two is shortened first."""
        return [self._features(e, self.room(room)) for e in examples]

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return the label that is entailed with the greatest odds."""
        scores = self.scores(output, batch)
        odds = batch.by_example(scores[:, 1] - scores[:, 0])
        pairs = zip(batch.features, odds, strict=True)
        return [Prediction(f.id, self._answer(own)) for f, own in pairs]

    def _answer(self, odds: Tensor) -> str:
        labels = list(self.forms)
        if len(labels) > 1 or odds[0] > 0:
            return labels[int(odds.argmax())]
        return next(label for label in self.task.labels if label != labels[0])

    def _features(self, example: Example, room: int) -> Features:
        pairs = [_pair(form, example, self.task.fields) for form in self.forms.values()]
        firsts, seconds = ([pair[i] for pair in pairs] for i in (0, 1))
        made = texts(self.backbone.tokenizer(), [firsts, seconds], room)
        rows = [summed_up(self.backbone, made, i) for i in range(len(pairs))]
        return Features(example.id, rows, [int(label == example.target) for label in self.forms])


def described(task: Task) -> dict[str, str]:
    """Return a task's descriptions, in the order of its labels.

    Raises:
        UserError: there are none, a label has none, or one quotes what is not there.
    """
    told: Mapping[str, str] = task.descriptions
    if not told:
        raise UserError(
            f"task={task.name} describes no labels, and method.readout=entailment asks about "
            "descriptions;\nwrite into the task's YAML: descriptions: {LABEL: TEXT, ...} "
            "(task=csv has none: type method.readout=head)."
        )
    if unknown := sorted(set(told) - set(task.labels)):
        raise UserError(
            f"task {task.name}: descriptions has {unknown[0]}; its labels are "
            f"{', '.join(task.labels)}."
        )
    missing = [label for label in task.labels if label not in told]
    if missing and len(task.labels) > 2:
        raise UserError(
            f"task {task.name}: descriptions lacks {', '.join(missing)}; "
            "only a task of two labels may describe one alone."
        )
    for label, form in told.items():
        _check_form(task, label, form)
    return {label: told[label] for label in task.labels if label in told}


def _check_form(task: Task, label: str, form: str) -> None:
    """Refuse a description that quotes no field of the task, or leaves no first text."""
    try:
        quoted = _quoted(form)
    except ValueError as error:
        raise UserError(f"task {task.name}: description of {label}, {form!r}: {error}.") from error
    if quoted - set(task.fields) or quoted == set(task.fields):
        raise UserError(
            f"task {task.name}: the description of {label}, {form!r}, may quote "
            f"{', '.join(task.fields)}, and must leave one of them out."
        )


def _quoted(form: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(form) if name is not None}


def _pair(form: str, example: Example, fields: Sequence[str]) -> tuple[str, str]:
    """Return the fields a description does not quote as one text, and the description."""
    left = [example.fields[field] for field in fields if field not in _quoted(form)]
    return " ".join(left), form.format_map(example.fields)
