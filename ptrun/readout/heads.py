"""`readout=head` and `readout=entailment`: linear maps of hidden states, learned by the method."""

import logging
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import islice
from string import Formatter
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from ptrun.backbone.base import BackboneOutput, Positions, on_device
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.backbone.weights import classifier_of
from ptrun.errors import UserError
from ptrun.pattern.spelling import SEPARATOR
from ptrun.readout.base import Batch, ClassWeights, Features, Readout, Thresholds, TokenRow
from ptrun.readout.head import (
    Head,
    LabelHead,
    NumberHead,
    PooledHead,
    Pooler,
    Shares,
    check_dropout,
    likeliest,
    row_limit,
    tokens,
)
from ptrun.readout.languages import tokenizer_of
from ptrun.readout.reading import Reading
from ptrun.task.dataset import GAP, SEVERAL, Task
from ptrun.types import Classes, Example, Prediction

_LOG = logging.getLogger(__name__)


class ChoiceHead(PooledHead):
    """Linear(H, 1) for each option, softmax over options (P-tuning v2, multiple choice).

    A row pairs the first field with a second text: the other fields, then the option.

    >>> from ptrun.testing import read
    >>> method, batch, output = read("method=prompt_tuning", "task=pocket_choice")
    >>> [len(f.rows) for f in batch.features], method.readout.scores(output, batch).shape
    ([4, 4], torch.Size([8, 1]))
    """

    outputs = 1

    def encode(self, examples: Sequence[Example], room: int) -> list[Features]:
        """Tokenize one row for each option; the longer text of the pair is shortened first."""
        questions = [self.question(e) for e in examples]
        texts: list[list[str]] = [[], []]
        for example, (options, _, _) in zip(examples, questions, strict=True):
            texts[0] += [example.fields[self.task.fields[0]]] * len(options)
            texts[1] += options
        rows = iter(self.rows(texts, room))
        return [
            Features(e.id, list(islice(rows, len(options))), targets, {"values": values})
            for e, (options, targets, values) in zip(examples, questions, strict=True)
        ]

    def question(self, example: Example) -> tuple[list[str], list[int], list[Any]]:
        """Return the second text of each row, the targets, and the prediction of each row."""
        before = [example.fields[field] for field in self.task.fields[1:]]
        options = [" ".join([*before, option]) for option in example.fields["options"]]
        return options, [example.target], list(range(len(options)))

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return cross-entropy over each example's options, summed, `[]`."""
        scores = batch.rows_by_example(self.scores(output, batch)[:, 0])
        padded = pad_sequence(scores, batch_first=True, padding_value=-torch.inf)
        return functional.cross_entropy(padded, batch.targets, reduction="sum")

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return the likeliest option of each example."""
        predictions: list[Prediction | Features] = []
        scores = batch.rows_by_example(self.scores(output, batch)[:, -1].cpu())
        for features, logits in zip(batch.features, scores, strict=True):
            (best,), (share,), (shares,) = likeliest(logits[None])
            values = features.facts["values"]
            by_option = Shares(values, shares)
            predictions.append(Prediction(features.id, values[best], {}, share, by_option))
        return predictions


class EntityHead(ChoiceHead):
    """Linear(H, 2) for each entity in the gap of a query: wrong or right.

    The prediction is the entity with the highest score for right. P-tuning v2 reads ReCoRD this
    way: each entity is its own binary example.

    >>> from ptrun.testing import read
    >>> from ptrun.types import Example
    >>> fields = {"passage": "A met B.", "query": "@placeholder left.", "entities": ["A", "B"]}
    >>> rows = [Example("id", fields, ["B"])]
    >>> method, batch, output = read("method=lora", "task=record", examples=rows)
    >>> method.readout.scores(output, batch).shape  # [entities, 2]
    torch.Size([2, 2])
    """

    outputs = 2
    loss = PooledHead.loss  # cross-entropy summed over entities

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return the entity of each example with the highest score for right."""
        scores = batch.rows_by_example(self.scores(output, batch)[:, -1].cpu())
        pairs = zip(batch.features, scores, strict=True)
        return [Prediction(f.id, f.facts["values"][int(logits.argmax())]) for f, logits in pairs]

    def question(self, example: Example) -> tuple[list[str], list[int], list[Any]]:
        """Return the query with each entity in its gap, which are right, and the entities."""
        entities = example.fields["entities"]
        queries = [example.fields["query"].replace(GAP, entity) for entity in entities]
        return queries, [int(e in example.target) for e in entities], list(entities)


class TokenHead(Head):
    """One label for each word, read at its first sub-token; truncated words get `O`, or "".

    So do words without a sub-token, such as a joiner of emoji, unless an entity goes on after them.
    "" is for labels that mark no spans, of which none means that there is none.

    There is no pooler. An encoder-decoder is read in its encoder.

    >>> from ptrun.testing import read
    >>> method, batch, output = read("method=ptuning_v2", "task=pocket_ner")
    >>> len(batch.targets), method.readout.scores(output, batch).shape  # a row a word, [K, C]
    (44, torch.Size([44, 9]))
    """

    everywhere = True
    keys: ClassVar[Set[str]] = {"dropout", "literal_sep"}
    literal_sep = False

    def __init__(self, backbone: PretrainedBackbone, task: Task):
        super().__init__(backbone, task, len(task.labels))
        self.unread = "O" if task.answer == "tags" else ""

    def encode(self, examples: Sequence[Example], room: int) -> list[Features]:
        """Tokenize pre-split words."""
        tokenizer = tokenizer_of(self.backbone, self.task, words=True)
        if not tokenizer.is_fast:
            raise UserError(
                f"backbone={self.backbone.name}: its tokenizer does not tell which word a token is "
                "of, so words cannot be labelled. Use a backbone with a tokenizer.json."
            )
        border = tokenizer.sep_token or tokenizer.eos_token or "|"
        border = SEPARATOR if self.literal_sep else border
        words = [list(example.fields[self.task.fields[0]]) for example in examples]
        for example, sentence in zip(examples, words, strict=True):
            if "predicate" in example.fields:
                sentence += [border, example.fields["predicate"]]
        limit = row_limit(self.task, room)
        rows = tokenizer(words, is_split_into_words=True, truncation=True, max_length=limit)
        return [self._features(example, rows, i) for i, example in enumerate(examples)]

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return a tag for each word of each example."""
        predictions: list[Prediction | Features] = []
        for features, best in batch.pairs(self.scores(output, batch).argmax(dim=-1).cpu()):
            tags = [self.unread] * features.facts["size"]
            for word, label in zip(features.facts["words"], best.tolist(), strict=True):
                tags[word] = self.task.labels[label]
            for word in features.facts.get("unseen", ()):
                if self.unread and word + 1 < len(tags) and tags[word + 1].startswith("I-"):
                    tags[word] = tags[word + 1]  # the entity goes on around it
            predictions.append(Prediction(features.id, tags))
        return predictions

    def _features(self, example: Example, rows: Any, i: int) -> Features:
        places: dict[int, int] = {}
        for position, word in enumerate(rows.word_ids(i)):
            if word is not None and word < len(example.target):  # not the predicate's copy
                places.setdefault(word, position)
        row = TokenRow(*tokens(rows, i), list(places.values()))
        targets = [self.task.labels.index(example.target[word]) for word in places]
        last = max(places, default=-1)
        unseen = [word for word in range(last) if word not in places]
        facts = {"size": len(example.target), "words": list(places)}
        facts |= {"unseen": unseen} if unseen else {}
        return Features(example.id, [row], targets, facts)


HEADS = Classes(
    label=LabelHead,
    labels="ptrun.readout.multilabel.LabelsHead",
    number=NumberHead,
    option=ChoiceHead,
    entity=EntityHead,
    tags=TokenHead,
    word_labels=TokenHead,
    span="ptrun.readout.spans.SpanHead",
    spans="ptrun.readout.spans.TagHead",
)
"""The head for each answer of a task. A new kind of task may add its own."""


@dataclass(frozen=True, kw_only=True)
class HeadReading(Reading):
    """A linear map of hidden states.

    Args:
        pooler: the vector of a text: see `ptrun.readout.head`. Only where one is read.
        dropout: before the map; null is the backbone's.
        literal_sep: of a sentence with a predicate (task=conll05): write the word "[SEP]" before
            it, as P-tuning v2's code does for all backbones: RoBERTa reads it as plain text. By
            default it is the tokenizer's own separator.
        longest_answer: the most tokens of a span.
        class_weights: `balanced` multiplies the loss of an example by N / (C n), where n of N
            training examples have its label, one of C. Of several labels a row, it multiplies the
            loss of a label that a row has by (N - n) / n.
        thresholds: of several labels a row: see `ptrun.readout.multilabel`.

    >>> from ptrun.readout.heads import HeadReading
    >>> HeadReading(pooler="mean").changed
    {'pooler': 'mean'}
    """

    name = "head"
    answers = ()  # those of `HEADS`
    may_differ = ("dropout", "class_weights", "thresholds")
    idle = ("literal_sep",)

    pooler: Pooler = "auto"
    dropout: float | None = None
    literal_sep: bool = False
    longest_answer: int = 30
    class_weights: ClassWeights = "none"
    thresholds: Thresholds = "one"

    @classmethod
    def reads(cls, task: Task) -> bool:
        """Return whether there is a head for the answer, or for each of several data sets."""
        return task.answer == SEVERAL or task.answer in HEADS

    def used(self, backbone: PretrainedBackbone, task: Task, *, soft: bool) -> set[str]:
        """Return the keys that the kind of answer has, besides `dropout`."""
        check_dropout("readout", self.dropout)
        if self.longest_answer < 1:
            raise UserError(f"readout.longest_answer is {self.longest_answer}; use 1 or more.")
        if task.answer == SEVERAL:
            self._check_shared(backbone, task)
            members: Any = task
            every = [self.used(backbone, member, soft=soft) for member in members.tasks.values()]
            return set().union(*every) - {"class_weights", "thresholds"}
        head = HEADS[task.answer]
        weighs = head.loss is getattr(head, "weighed", None)  # a head may have a loss of its own
        keys = {*head.keys, *(["class_weights"] if weighs else [])}
        return keys if getattr(task, "has_predicate", False) else keys - {"literal_sep"}

    def made(self, backbone: PretrainedBackbone, task: Task, *, soft: bool) -> Readout:
        """Return the head of the kind of task, or one head for each of several data sets."""
        if task.answer == SEVERAL:
            members: Any = task
            tasks = members.tasks.items()
            return MultiHead({n: self.made(backbone, member, soft=soft) for n, member in tasks})
        used = self.used(backbone, task, soft=soft)
        head: Any = HEADS[task.answer](backbone, task, *([self.pooler] if "pooler" in used else []))
        for key in used - {"pooler", "dropout"}:
            setattr(head, key, getattr(self, key))
        head.dropout = head.dropout if self.dropout is None else self.dropout
        readout: Readout = head
        return readout

    def _check_shared(self, backbone: PretrainedBackbone, task: Any) -> None:
        """Refuse heads that need different states for different data sets."""
        for member in task.tasks.values():
            if not self.reads(member):
                raise UserError(
                    f"task={task.name} is several tasks in one, and readout=head cannot answer "
                    f"{member.name}, which is {member.kind}; leave it out."
                )
        pooled = [n for n, member in task.tasks.items() if "pooler" in HEADS[member.answer].keys]
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

    >>> from ptrun.readout.heads import EntailmentReading
    >>> EntailmentReading(dropout=0.2).changed
    {'dropout': 0.2}
    """

    name = "entailment"
    answers = ("label",)
    may_differ = ("dropout",)

    pooler: Pooler = "auto"
    dropout: float | None = None

    def used(self, backbone: PretrainedBackbone, task: Task, *, soft: bool) -> set[str]:
        """Return the keys; refuse a task without descriptions of its labels."""
        check_dropout("readout", self.dropout)
        described(task)
        return super().used(backbone, task, soft=soft)

    def made(self, backbone: PretrainedBackbone, task: Task, *, soft: bool) -> Readout:
        """Return the head."""
        head = EntailmentHead(backbone, task, self.pooler)
        head.dropout = head.dropout if self.dropout is None else self.dropout
        return head


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

    >>> from ptrun.testing import read
    >>> method, batch, output = read("method=efl", "task=pocket_topics")
    >>> method.readout.scores(output, batch).shape  # a row a description, [R, 2]
    torch.Size([28, 2])
    """

    def __init__(self, backbone: PretrainedBackbone, task: Task, pooler: Pooler = "auto"):
        classifier = classifier_of(backbone)
        if classifier and (
            classifier.entailed is None or pooler not in ("auto", classifier.pooler)
        ):
            classifier = None
        size = len(classifier.labels) if classifier else 2
        super().__init__(backbone, task, classifier.pooler if classifier else pooler, size)  # type: ignore[arg-type]
        self.classifier = classifier
        self.entailed = classifier.entailed if classifier and classifier.entailed is not None else 1
        self.forms = described(task)

    def begin(self) -> bool:
        """Copy the backbone's classifier; return False if it has none."""
        if self.classifier is None:
            return False
        backbone = self.backbone
        folder = backbone.tuned.file.parent if backbone.tuned else backbone.folder
        assert folder is not None  # it is loaded
        tensors = self.classifier.tensors(folder)
        parameters = dict(self.named_parameters())
        if lost := sorted(parameters.keys() - tensors.keys()):
            raise UserError(
                f"backbone={backbone.name}: its configuration names a classification head, but its "
                f"files lack {lost[0]}; type readout.pooler=none for a new head."
            )
        with torch.no_grad():
            for name, tensor in tensors.items():
                parameters[name].copy_(tensor)
        labels = list(self.classifier.labels)
        entailed = labels.pop(self.entailed)
        origin = self.classifier.origin
        _LOG.info("the head starts from %s: %s against %s", origin, entailed, ", ".join(labels))
        return True

    def scores(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return `[R, 2]`, not entailed and entailed; the classes of "not entailed" are added."""
        scores = super().scores(output, batch)
        columns = list(scores.unbind(dim=1))
        entailed = columns.pop(self.entailed)
        return torch.stack([torch.stack(columns, dim=1).logsumexp(dim=1), entailed], dim=1)

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return the label that is entailed with the greatest odds."""
        scores = self.scores(output, batch).cpu()
        odds = batch.rows_by_example(scores[:, 1] - scores[:, 0])
        labels = list(self.forms)
        other = next(label for label in self.task.labels if label != labels[0])
        predictions: list[Prediction | Features] = []
        for features, logits in zip(batch.features, odds, strict=True):
            is_described = len(labels) > 1 or logits[0] > 0
            label = labels[int(logits.argmax())] if is_described else other
            predictions.append(Prediction(features.id, label))
        return predictions

    def encode(self, examples: Sequence[Example], room: int) -> list[Features]:
        """Tokenize one row for each description; the longer text of a pair is shortened first."""
        encoded = []
        for example in examples:
            texts: list[list[str]] = [[], []]
            for form in self.forms.values():
                quoted = _quoted(form)
                others = [example.fields[name] for name in self.task.fields if name not in quoted]
                texts[0].append(" ".join(others))
                texts[1].append(form.format_map(example.fields))
            targets = [int(label == example.target) for label in self.forms]
            encoded.append(Features(example.id, self.rows(texts, room), targets))
        return encoded


def described(task: Task) -> dict[str, str]:
    """Return a task's descriptions, in the order of its labels."""
    forms: Mapping[str, str] = task.descriptions
    if not forms:
        raise UserError(
            f"task={task.name} has no descriptions of its labels, and readout=entailment "
            "needs them;\nwrite into the task's YAML: descriptions: {LABEL: TEXT, ...} "
            "(task=csv has none: type readout=head)."
        )
    missing = [label for label in task.labels if label not in forms]
    if set(forms) - set(task.labels) or (missing and len(task.labels) > 2):
        raise UserError(
            f"task {task.name}: descriptions has {', '.join(forms)}; its labels are "
            f"{', '.join(task.labels)}, of which only a task of two may describe one alone."
        )
    fields = set(task.fields)
    for label, form in forms.items():
        try:
            fits = _quoted(form) < fields
        except ValueError as error:
            raise UserError(
                f"task {task.name}: description of {label}, {form!r}: {error}."
            ) from error
        if not fits:
            raise UserError(
                f"task {task.name}: the description of {label}, {form!r}, may quote "
                f"{', '.join(task.fields)}, and must leave one of them out."
            )
    return {label: forms[label] for label in task.labels if label in forms}


def _quoted(form: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(form) if name is not None}


class MultiHead(nn.Module, Readout):
    """Dispatches examples to the head of their data set, which `facts["set"]` names.

    Args:
        heads: read-outs by name of data set, all of hidden states.

    >>> from ptrun.testing import read
    >>> options = "method=ptuning_v2", "readout.pooler=none", "task=pocket_multi"
    >>> method, batch, output = read(*options)
    >>> list(method.readout.heads)
    ['pocket_ner', 'pocket_srl', 'pocket_qa', 'pocket_topics']
    """

    def __init__(self, heads: Mapping[str, Readout]):
        super().__init__()
        self.heads = nn.ModuleDict(heads)  # type: ignore[arg-type]
        self.reads_decoder = any(head.reads_decoder for head in heads.values())

    def encode(self, examples: Sequence[Example], room: int) -> list[Features]:
        """Return the features of each example, from the head of its data set."""
        from ptrun.task.multi import member_of  # one run of many reads several tasks

        owners = [member_of(example) for example in examples]
        parts = {
            name: iter(head.encode([e for e in examples if member_of(e) == name], room))
            for name, head in self._heads(owners).items()
        }
        encoded = [(owner, next(parts[owner])) for owner in owners]
        return [replace(f, facts={**f.facts, "set": owner}) for owner, f in encoded]

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return the sum of the heads' losses, `[]`."""
        heads = self._heads(_sets(batch)).items()
        return torch.stack([head.loss(*_of(name, output, batch)) for name, head in heads]).sum()

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return the predictions, each from the head of its data set."""
        heads = self._heads(_sets(batch)).items()
        parts = {name: iter(head.decode(*_of(name, output, batch))) for name, head in heads}
        return [next(parts[name]) for name in _sets(batch)]

    def _heads(self, names: Sequence[str]) -> dict[str, Readout]:
        """Return the heads of these data sets, in the order of `heads`."""
        return {name: head for name, head in self.heads.items() if name in names}  # type: ignore[misc]


def _sets(batch: Batch) -> list[str]:
    return [f.facts["set"] for f in batch.features]


def _of(name: str, output: BackboneOutput, batch: Batch) -> tuple[BackboneOutput, Batch]:
    """Return the features of one data set with their reads, targets and states; rows stay."""
    features = [f for f in batch.features if f.facts["set"] == name]
    flags = [(f, f.facts["set"] == name) for f in batch.features]
    reads = _places([belongs for f, belongs in flags for row in f.rows for _ in row.reads], batch)
    targets = batch.targets[_places([belongs for f, belongs in flags for _ in f.targets], batch)]
    if not any(isinstance(target, float) for f in features for target in f.targets):
        targets = targets.long()  # another data set of the batch may have numbers
    assert output.hidden is not None
    positions = Positions(batch.reads.rows[reads], batch.reads.columns[reads])
    part = replace(batch, features=features, reads=positions, targets=targets)
    return BackboneOutput(hidden=output.hidden[reads]), part


def _places(flags: list[bool], batch: Batch) -> Tensor:
    """Return where flags are true; an index by a mask would make the host wait for its size."""
    return on_device([place for place, flag in enumerate(flags) if flag], batch.ids.device)
