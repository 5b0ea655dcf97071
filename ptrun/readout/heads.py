"""`readout=head` and `readout=entailment`: linear maps of hidden states, learned by the method."""

from collections.abc import Callable
from dataclasses import dataclass

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.readout.base import Readout
from ptrun.readout.choice_head import ChoiceHead, EntityHead
from ptrun.readout.entailment_head import EntailmentHead, described
from ptrun.readout.head import Head
from ptrun.readout.multi_head import MultiHead
from ptrun.readout.multispan.tags import TagHead
from ptrun.readout.pooled_head import LabelHead, NumberHead, PooledHead, Pooler
from ptrun.readout.reading import Reading
from ptrun.readout.span_head import SpanHead
from ptrun.readout.token_head import TokenHead
from ptrun.task.base import Task
from ptrun.task.multi import Multi
from ptrun.task.tagging import Tagging

HEADS: dict[str, Callable[..., Head]] = {
    "label": LabelHead,
    "number": NumberHead,
    "option": ChoiceHead,
    "entity": EntityHead,
    "tags": TokenHead,
    "span": SpanHead,
    "spans": TagHead,
}
"""The head for each answer of a task. A new kind of task may add its own."""


@dataclass(frozen=True, kw_only=True)
class HeadReading(Reading):
    """A linear map of hidden states.

    Args:
        pooler: the vector of a text: see `ptrun.readout.pooled_head`. Only where one is read.
        dropout: before the map; null is the backbone's.
        literal_sep: of a sentence with a predicate (task=conll05): see `ptrun.readout.token_head`.
    """

    name = "head"
    answers = ()  # those of `HEADS`
    may_differ = ("dropout",)
    idle = ("literal_sep",)

    pooler: Pooler = "auto"
    dropout: float | None = None
    literal_sep: bool = False

    @classmethod
    def reads(cls, task: Task) -> bool:
        """Return whether there is a head for the answer, or for each of several data sets."""
        return isinstance(task, Multi) or task.answer in HEADS

    def fits(self, backbone: PretrainedBackbone, task: Task, *, soft: bool) -> None:
        """Refuse a dropout that is no probability, and data sets without a common pooler."""
        _check_dropout(self.dropout)
        if isinstance(task, Multi):
            self._check_shared(backbone, task)

    def used(self, backbone: PretrainedBackbone, task: Task, *, soft: bool) -> set[str]:
        """Return the keys: `pooler` where a vector of a text is read, `literal_sep` on words."""
        if isinstance(task, Multi):
            every = [self.used(backbone, own, soft=soft) for own in task.tasks.values()]
            return set().union(*every)
        parts = isinstance(task, Tagging) and task.has_predicate
        words = ["literal_sep"] if parts else []
        return {"dropout", *words, *(["pooler"] if _is_pooled(task) else [])}

    def made(self, backbone: PretrainedBackbone, task: Task, *, soft: bool) -> Readout:
        """Return the head of the kind of task, or one head for each of several data sets."""
        if isinstance(task, Multi):
            heads = {n: self.made(backbone, own, soft=soft) for n, own in task.tasks.items()}
            return MultiHead(heads)
        head = self._made(backbone, task)
        if self.dropout is not None:
            head.dropout = self.dropout
        return head  # type: ignore[return-value]

    def _made(self, backbone: PretrainedBackbone, task: Task) -> Head:
        made = HEADS[task.answer]
        if made is TokenHead:
            return made(backbone, task, literal_sep=self.literal_sep)
        return made(backbone, task, self.pooler) if _is_pooled(task) else made(backbone, task)

    def _check_shared(self, backbone: PretrainedBackbone, task: Multi) -> None:
        """Refuse heads that need different states for different data sets."""
        for own in task.tasks.values():
            if not self.reads(own):
                raise UserError(
                    f"task={task.name} is several tasks in one, and readout=head cannot answer "
                    f"{own.name}, which is {own.kind}; leave it out."
                )
        pooled = [name for name, own in task.tasks.items() if _is_pooled(own)]
        mixed = 0 < len(pooled) < len(task.tasks)
        if backbone.architecture.has_decoder and mixed and self.pooler != "mean":
            raise UserError(
                f"task={task.name} cannot run on an encoder-decoder: {', '.join(pooled)} are read "
                "in its decoder, the others in its encoder; use readout.pooler=mean or tasks of "
                "one kind."
            )
        if pooled and self.pooler in ("auto", "frozen"):
            raise UserError(
                f"task={task.name} is several tasks in one, and {', '.join(pooled)} would use a "
                "pooler; use readout.pooler=none, trainable or mean."
            )


@dataclass(frozen=True, kw_only=True)
class EntailmentReading(Reading):
    """A head that decides whether a label's description is entailed (EFL).

    Args:
        pooler, dropout: as in `HeadReading`; `pooler` is that of an initial head.
    """

    name = "entailment"
    answers = ("label",)
    may_differ = ("dropout",)

    pooler: Pooler = "auto"
    dropout: float | None = None

    def fits(self, backbone: PretrainedBackbone, task: Task, *, soft: bool) -> None:
        """Refuse a task without descriptions of its labels."""
        _check_dropout(self.dropout)
        described(task)

    def made(self, backbone: PretrainedBackbone, task: Task, *, soft: bool) -> Readout:
        """Return the head."""
        head = EntailmentHead(backbone, task, self.pooler)
        if self.dropout is not None:
            head.dropout = self.dropout
        return head


def _is_pooled(task: Task) -> bool:
    """Return whether the head of a task reads one vector of a text."""
    made = HEADS.get(task.answer)
    return isinstance(made, type) and issubclass(made, PooledHead)


def _check_dropout(dropout: float | None) -> None:
    if dropout is not None and not 0 <= dropout < 1:
        raise UserError(f"readout.dropout is {dropout}; use 0 or more, and less than 1.")
