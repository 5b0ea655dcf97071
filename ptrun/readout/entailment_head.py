"""A head that decides whether a text entails the description of a label (EFL)."""

from collections.abc import Mapping, Sequence
from string import Formatter

import torch
from torch import Tensor

from ptrun.backbone.base import BackboneOutput
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.backbone.tuned import classifier_of
from ptrun.errors import UserError
from ptrun.readout.base import Batch, Features
from ptrun.readout.pooled_head import PooledHead, Pooler
from ptrun.task.base import Task
from ptrun.types import Example, Prediction


class EntailmentHead(PooledHead):
    """Linear(H, C) for each description, entailed or not; the most entailed label is predicted.

    Wang et al. 2021, Entailment as Few-Shot Learner: each row (text, description) is its own binary
    example. A binary task may describe one label alone, as in EFL; the other label is predicted if
    that description is not entailed. If the text is a pair, a description quotes one of its fields
    (`{hypothesis}`), and the other fields are the first text. STS-B, which IDPG's row has, is not
    supported: its targets are numbers. IDPG's descriptions are not published; ours may differ.

    If the backbone was tuned with a head that has a row for entailment (an MNLI model, or a run
    that `start=run:` names), this head starts from its rows and dense layer. The other rows
    together mean "not entailed". With another `pooler` or backbone, C is 2 and the start is random.
    """

    def __init__(self, backbone: PretrainedBackbone, task: Task, pooler: Pooler = "auto"):
        known = classifier_of(backbone)
        if known is None or known.entailed is None or pooler not in ("auto", known.pooler):
            known = None
        size = len(known.labels) if known else 2
        super().__init__(backbone, task, known.pooler if known else pooler, size)  # type: ignore[arg-type]
        self.classifier = known
        self.entailed = known.entailed if known and known.entailed is not None else 1
        self.forms = described(task)

    def scores(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return `[R, 2]`, not entailed and entailed; the classes of "not entailed" are added."""
        scores = super().scores(output, batch)
        columns = list(scores.unbind(dim=1))
        entailed = columns.pop(self.entailed)
        return torch.stack([torch.stack(columns, dim=1).logsumexp(dim=1), entailed], dim=1)

    def encode(self, examples: Sequence[Example], room: int) -> list[Features]:
        """Tokenize one row for each description; the longer text of a pair is shortened first."""
        return [self._features(e, room) for e in examples]

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return the label that is entailed with the greatest odds."""
        scores = self.scores(output, batch).cpu()
        odds = batch.rows_by_example(scores[:, 1] - scores[:, 0])
        pairs = zip(batch.features, odds, strict=True)
        return [Prediction(f.id, self._label(own)) for f, own in pairs]

    def _label(self, odds: Tensor) -> str:
        labels = list(self.forms)
        if len(labels) > 1 or odds[0] > 0:
            return labels[int(odds.argmax())]
        return next(label for label in self.task.labels if label != labels[0])

    def _features(self, example: Example, room: int) -> Features:
        pairs = [_pair(form, example, self.task.fields) for form in self.forms.values()]
        rows = self.rows([[pair[i] for pair in pairs] for i in (0, 1)], room)
        return Features(example.id, rows, [int(label == example.target) for label in self.forms])


def described(task: Task) -> dict[str, str]:
    """Return a task's descriptions, in the order of its labels.

    Raises:
        UserError: there are none, a label has none, or one quotes an unknown field.
    """
    forms: Mapping[str, str] = task.descriptions
    if not forms:
        raise UserError(
            f"task={task.name} has no descriptions of its labels, and readout=entailment "
            "needs them;\nwrite into the task's YAML: descriptions: {LABEL: TEXT, ...} "
            "(task=csv has none: type readout=head)."
        )
    if unknown := sorted(set(forms) - set(task.labels)):
        raise UserError(
            f"task {task.name}: descriptions has {unknown[0]}; its labels are "
            f"{', '.join(task.labels)}."
        )
    missing = [label for label in task.labels if label not in forms]
    if missing and len(task.labels) > 2:
        raise UserError(
            f"task {task.name}: descriptions lacks {', '.join(missing)}; "
            "only a task of two labels may describe one alone."
        )
    for label, form in forms.items():
        _check_form(task, label, form)
    return {label: forms[label] for label in task.labels if label in forms}


def _check_form(task: Task, label: str, form: str) -> None:
    """Refuse a description that quotes an unknown field, or all fields of the task."""
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
    """Return the fields that a description does not quote as one text, and the description."""
    left = [example.fields[field] for field in fields if field not in _quoted(form)]
    return " ".join(left), form.format_map(example.fields)
