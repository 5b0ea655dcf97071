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
from ptrun.readout.pooled_head import LabelHead, NumberHead, Pooler
from ptrun.readout.reading import Reading
from ptrun.readout.span_head import SpanHead
from ptrun.readout.token_head import TokenHead
from ptrun.task.base import Task
from ptrun.task.multi import Multi
from ptrun.task.tagging import Tagging

_POOLED: dict[str, Callable[..., Head]] = {
    "classification": LabelHead,
    "span_check": LabelHead,
    "regression": NumberHead,
    "choice": ChoiceHead,
    "entity_choice": EntityHead,
}
_PLAIN: dict[str, Callable[..., Head]] = {
    "tagging": TokenHead,
    "extraction": SpanHead,
    "multispan": TagHead,
}


@dataclass(frozen=True, kw_only=True)
class HeadReading(Reading):
    """A linear map of hidden states.

    Args:
        pooler: the vector of a text: see `ptrun.readout.pooled_head`. Only where one is read.
        dropout: before the map; null is the backbone's.
        literal_sep: of a sentence with a predicate (task=conll05): see `ptrun.readout.token_head`.
    """

    name = "head"
    kinds = (*_POOLED, *_PLAIN, "multi")
    may_differ = ("dropout",)
    idle = ("literal_sep",)

    pooler: Pooler = "auto"
    dropout: float | None = None
    literal_sep: bool = False

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
        return {"dropout", *words, *(["pooler"] if task.kind in _POOLED else [])}

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
        if task.kind == "tagging":
            return TokenHead(backbone, task, literal_sep=self.literal_sep)
        if task.kind in _PLAIN:
            return _PLAIN[task.kind](backbone, task)
        return _POOLED[task.kind](backbone, task, self.pooler)

    def _check_shared(self, backbone: PretrainedBackbone, task: Multi) -> None:
        """Refuse heads that need different states for different data sets."""
        for own in task.tasks.values():
            if own.kind not in self.kinds:
                raise UserError(
                    f"task={task.name} is several tasks in one, and readout=head cannot answer "
                    f"{own.name}, which is {own.kind}; leave it out."
                )
        pooled = [name for name, own in task.tasks.items() if own.kind in _POOLED]
        mixed = 0 < len(pooled) < len(task.tasks)
        if backbone.family == "seq2seq" and mixed and self.pooler != "mean":
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
    kinds = ("classification",)
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


def _check_dropout(dropout: float | None) -> None:
    if dropout is not None and not 0 <= dropout < 1:
        raise UserError(f"readout.dropout is {dropout}; use 0 or more, and less than 1.")
