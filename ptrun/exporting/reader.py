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

from ptrun.errors import UserError
from ptrun.method.base import Method
from ptrun.readout.class_words import ClassWords
from ptrun.readout.cloze import Cloze
from ptrun.readout.head import Head
from ptrun.readout.pooled_head import LabelHead, PooledHead
from ptrun.readout.token_head import TokenHead

_WORDS = {
    "masked": ("AutoModelForMaskedLM", "FEATURE_EXTRACTION"),  # PEFT has no kind for masked words
    "causal": ("AutoModelForCausalLM", "CAUSAL_LM"),
    "seq2seq": ("AutoModelForSeq2SeqLM", "SEQ_2_SEQ_LM"),
}
_SCORES = ("llama", "mistral", "qwen2", "qwen3")  # the name of their token head is `score`
_TANH = {"bert": "bert.pooler.dense", "albert": "albert.pooler"}  # their pooler: dense and tanh


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
    readout, family = method.readout, method.backbone.family
    if isinstance(readout, Cloze) and not isinstance(readout, ClassWords) and family in _WORDS:
        return Reader(*_WORDS[family])
    if type(readout) is TokenHead:
        return _token(method, readout)
    if isinstance(readout, LabelHead):
        return _label(method, readout)
    raise cannot(
        f"no stock class of transformers has its read-out ({type(readout).__name__}). Labels of "
        "a text, tags of words, and verbalizers can be exported."
    )


def _token(method: Method, readout: Head) -> Reader:
    name = "score" if method.backbone.config["model_type"] in _SCORES else "classifier"
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
    kind, dense = method.backbone.config["model_type"], _dense(method, readout)
    labels = tuple(map(str, method.task.labels)) or ("number",)
    own = "AutoModelForSequenceClassification", "SEQ_CLS", labels
    if kind == "roberta" and dense:
        tensors = {f"classifier.dense.{n}": t for n, t in dense.items()}
        return Reader(*own, tensors | _linear("classifier.out_proj", readout), ("classifier",))
    if kind not in _TANH or not dense:
        raise cannot(_other_head(kind))
    linear = _linear("classifier", readout)
    if _from_checkpoint(method, readout):
        return Reader(*own, linear, ("classifier",))
    pooler = {f"{_TANH[kind]}.{n}": t for n, t in dense.items()}
    return Reader(*own, linear | pooler, ("classifier", "pooler"))


def _other_head(kind: str) -> str:
    """Return why the stock classifier of a model type is not the head of a run, and what is."""
    if kind == "roberta":
        return (
            "RobertaForSequenceClassification has a dense layer before its labels, and this run "
            "has none. Train with readout.pooler=classifier."
        )
    if kind in _TANH:
        return (
            "the stock model has a pooler before its labels, and this run has none. Train with "
            "readout.pooler=trainable."
        )
    heads = {
        "electra": "ElectraForSequenceClassification has GELU in its head",
        "deberta": "DebertaForSequenceClassification has GELU in its pooler",
        "deberta-v2": "DebertaV2ForSequenceClassification has GELU in its pooler",
        "t5": "T5ForSequenceClassification reads the end of the text",
        "mt5": "MT5ForSequenceClassification reads the end of the text",
    }
    differs = heads.get(kind, "the stock classifier has no bias, which this run's head has")
    return f"{differs}. Tags of words, and on most models readout=verbalizer, can be held."


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
