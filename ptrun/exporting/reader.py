"""The stock model that answers as a read-out does: a class of transformers, and its head's tensors.

| read-out            | class                                | head                                |
|---------------------|--------------------------------------|-------------------------------------|
| head, one label     | AutoModelForSequenceClassification   | `classifier`, with a pooler if one  |
| head, one a word    | AutoModelForTokenClassification      | `classifier`, on Llama `score`      |
| verbalizer          | AutoModelForMaskedLM, ForCausalLM or | the pre-trained one                 |
|                     | ForSeq2SeqLM                         |                                     |
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from ptrun.backbone.family import Stock
from ptrun.errors import UserError
from ptrun.method.base import Method
from ptrun.readout.class_words import ClassWords
from ptrun.readout.cloze import Cloze
from ptrun.readout.head import Head
from ptrun.readout.pooled_head import LabelHead, PooledHead
from ptrun.readout.token_head import TokenHead


@dataclass(frozen=True)
class Reader:
    """A stock model that reads an answer.

    Args:
        auto: the class of transformers.
        task_type: PEFT's word for it.
        labels: the labels of a head, in order; empty for words.
        tensors: the trained tensors of the model's own modules, by name.
        modules: the names of these modules.
    """

    auto: str
    task_type: str
    labels: tuple[str, ...] = ()
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    modules: tuple[str, ...] = ()

    @property
    def words(self) -> bool:
        """Whether it answers by words of the pre-trained head."""
        return not self.modules


def cannot(reason: str) -> UserError:
    """Return the refusal of a run that PEFT cannot hold."""
    return UserError(f"export: PEFT cannot hold this run: {reason}")


def reader_of(method: Method) -> Reader:
    """Return the stock model that reads a method's answers.

    Raises:
        UserError: transformers has no such model.
    """
    readout, words = method.readout, method.backbone.architecture.stock.words
    if isinstance(readout, Cloze) and not isinstance(readout, ClassWords) and words:
        return Reader(*words)
    if type(readout) is TokenHead:
        return _token(method, readout)
    if isinstance(readout, LabelHead):
        return _label(method, readout)
    raise cannot(
        f"no stock class of transformers has its read-out ({type(readout).__name__}). Labels of "
        "a text, tags of words, and verbalizers can be exported."
    )


def _token(method: Method, readout: Head) -> Reader:
    name = method.backbone.architecture.stock.tags
    labels = tuple(map(str, method.task.labels))
    return Reader(
        "AutoModelForTokenClassification", "TOKEN_CLS", labels, _linear(name, readout), (name,)
    )


def _label(method: Method, readout: LabelHead) -> Reader:
    """Return the reader of one label a text.

    Raises:
        UserError: the stock head of this model type differs.
    """
    if readout.pooler == "mean":
        raise cannot("stock classifiers read one token, and readout.pooler=mean reads all.")
    stock, dense = method.backbone.architecture.stock, _dense(method, readout)
    labels = tuple(map(str, method.task.labels)) or ("number",)
    own = "AutoModelForSequenceClassification", "SEQ_CLS", labels
    if stock.dense is None or not dense:
        raise cannot(_other_head(stock))
    linear = _linear(stock.labels, readout)
    if _from_checkpoint(method, readout):
        return Reader(*own, linear, ("classifier",))
    tensors = {f"{stock.dense}.{n}": t for n, t in dense.items()} | linear
    inside = stock.dense.startswith("classifier.")
    return Reader(*own, tensors, ("classifier",) if inside else ("classifier", "pooler"))


def _other_head(stock: Stock) -> str:
    """Return why the stock classifier of a model type is not the head of a run, and what is."""
    if stock.dense is None:
        return (
            f"{stock.differs}. Tags of words, and on most models readout=verbalizer, can be held."
        )
    return (
        "the stock model has a dense layer before its labels, and this run has none. Train with "
        f"readout.pooler={stock.pooler}."
    )


def _dense(method: Method, head: PooledHead) -> dict[str, Tensor]:
    """Return the layer before tanh: the head's own or the backbone's; empty without one."""
    layer = head.dense
    if head.reads_pooler:
        layer = method.backbone.model.pooler
    return {} if layer is None else {n: p.detach() for n, p in layer.named_parameters()}


def _from_checkpoint(method: Method, head: PooledHead) -> bool:
    return head.dense is None and method.backbone.has_pooler


def _linear(name: str, head: Head) -> dict[str, Tensor]:
    return {f"{name}.{n}": p.detach() for n, p in head.linear.named_parameters()}
