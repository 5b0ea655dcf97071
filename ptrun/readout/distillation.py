"""`readout=distillation`: learn to write as the frozen backbone writes with a document in view.

Context distillation of a document (Snell et al. 2022), as cartridges are trained (Eyuboglu et al.
2025, Eq. 2). The teacher is the backbone itself with the document before the row; the student
reads the row alone, with what the method adds. For each learned token the loss is the divergence
KL(teacher || student) over the teacher's `kept_tokens` likeliest tokens and one outcome for all
others, in nats: at most the divergence over the vocabulary, and 0 where both agree. (The paper
leaves the other tokens out, and then the loss has no lower bound of its own.)

The teacher's log-probabilities are computed once, and kept in `outputs/.tokens`.
"""

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ptrun.backbone.base import BackboneInput, BackboneOutput, moved
from ptrun.backbone.choosing import Decoding
from ptrun.backbone.generation import generate
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.files import from_json, read_text, write_text
from ptrun.folder.store import bound_to, draft, read_tensors
from ptrun.readout import document
from ptrun.readout.base import Batch, Features, TokenRow, collate, word_logits
from ptrun.readout.document import Document, Span
from ptrun.readout.writing import LossOn, Writing, WritingReading
from ptrun.task.conversation import Conversation
from ptrun.task.dataset import Task
from ptrun.types import Example, Prediction

_LOG = logging.getLogger(__name__)
_SPAN = "part of the document"  # the field of an example
_QUESTION = 48  # tokens of a question
_TOGETHER = 16  # rows that are written together


@dataclass(frozen=True, kw_only=True)
class DistillationReading(WritingReading):
    """The answer is written as the backbone writes it with a document in view.

    Args beyond those of `WritingReading`; `loss_on` is `all`, as the teacher knows questions too:
        document: the text in view, or `@FILE`; its content is in the run's id, not its place.
        kept_tokens: the number of the teacher's likeliest tokens that the loss compares.
        self_study: the number of questions that the backbone asks about the document; with its own
            answers they replace train. 0: train as it is.
        chunk: tokens of the part of the document that a question is about.

    >>> from ptrun.readout.distillation import DistillationReading
    >>> DistillationReading(document="A red boat.", kept_tokens=5).changed
    {'document': 'A red boat.', 'kept_tokens': 5}
    """

    name = "distillation"
    keeps_backbone = True

    loss_on: LossOn = "all"
    document: str | None = None
    kept_tokens: int = 20
    self_study: int = 0
    chunk: int = 512

    def used(self, backbone: PretrainedBackbone, task: Task, *, soft: bool) -> set[str]:
        """Return the keys that change a number: the parts are those of self-study.

        A model that cannot have a text in view as keys and values is refused.
        """
        keys = super().used(backbone, task, soft=soft)
        family = backbone.architecture
        if not family.left_to_right or family.has_blank or family.bars_prefixes:
            raise UserError(
                "readout=distillation needs a model that reads left to right, and backbone="
                f"{backbone.name} is {backbone.family}; use backbone=smollm2_135m, for example."
            )
        if not self.document:
            raise UserError(
                "readout=distillation needs a document. Type readout.document=@FILE, or a text."
            )
        for key, low in (("kept_tokens", 1), ("self_study", 0), ("chunk", 1)):
            if getattr(self, key) < low:
                raise UserError(f"readout.{key} is {getattr(self, key)}; use {low} or more.")
        if self.self_study and len(task.fields) != 1:
            raise UserError(
                f"readout.self_study={self.self_study}: task={task.name} has the fields "
                f"{', '.join(task.fields)}, and a question needs one. Type task.text=COLUMN."
            )
        keys |= {"document", "kept_tokens", "self_study"}
        return keys | ({"chunk", "draw"} if self.self_study else set())

    def made(self, backbone: PretrainedBackbone, task: Task, *, soft: bool) -> "Distillation":
        """Return the read-out."""
        return Distillation(backbone, task, self._pvp(backbone, task, soft), self)

    @classmethod
    def fingerprint_config(cls, node: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the node with the digest of the document in place of its text or file."""
        return {**node, "document": document.recorded(node["document"])}

    @classmethod
    def recalled(cls, node: dict[str, Any], recorded: Mapping[str, Any]) -> dict[str, Any]:
        """Return the node with the document's digest: the prompt stands for the document."""
        return {**node, "document": recorded["document"]}


class Distillation(Writing):
    """Writes answers, and learns them from the backbone with a document in view.

    >>> from ptrun.testing import read
    >>> document = "readout.document=A red boat is on the river."
    >>> options = "task=pocket_writing", "backbone=pocket_gpt2", document
    >>> method, batch, output = read("method=lora", "readout=distillation", *options)
    >>> len(method.readout.document.ids)
    9
    """

    options: DistillationReading

    @cached_property
    def document(self) -> Document | None:
        """The document; None if only its digest is known: in predictions of a saved run."""
        value = self.options.document or ""
        if value.startswith(document.DIGEST):
            return None
        return Document(self.backbone, document.read_document(value, "readout.document"))

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return the divergence from the teacher summed over the learned tokens, `[]`."""
        divergence = self._divergence(output, batch)
        assert divergence is not None, "the document is known in training"
        return divergence.sum()

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return the losses of each answer; its text is written apart.

        `loss` is the divergence, if the document is known, `answer_loss` the cross-entropy.
        """
        plain: Any = super().decode(output, batch)
        apart = self._divergence(output, batch)
        sums = [None] * len(plain) if apart is None else batch.by_example(apart.cpu())
        scored = []
        for prediction, features, divergence in zip(plain, batch.features, sums, strict=True):
            if divergence is None or self._span(features) is not None:
                loss, count = prediction.figures["loss"], prediction.figures["tokens"]
                figures = {"answer_loss": loss, "tokens": count}
                figures |= {} if divergence is None else {"loss": float(divergence.sum())}
                prediction = replace(prediction, figures=figures)
            scored.append(prediction)
        return scored

    def _divergence(self, output: BackboneOutput, batch: Batch) -> Tensor | None:
        """Return KL(teacher || student) at each learned token, `[K]`, in nats."""
        tables = [self.backbone.kept.get(self._key(f)) for f in batch.features]
        if any(table is None for table in tables):
            return None
        taught = torch.cat([table for table in tables if table is not None], dim=1)
        taught = moved(taught, batch.targets.device)
        logs, shares = taught[1], taught[1].exp()
        student = word_logits(output).log_softmax(dim=-1).gather(1, taught[0].long())
        others = (1 - shares.sum(1)).clamp(min=0)
        left = (1 - student.exp().sum(1)).clamp(min=torch.finfo(student.dtype).eps)
        within = torch.where(shares > 0, shares * (logs - student), 0.0).sum(1)
        return within + torch.xlogy(others, others) - torch.xlogy(others, left)

    # The teacher.

    def unprepared(self, features: Sequence[Features], *, training: bool) -> list[Features]:
        """Return the examples whose teacher is not known, once those in a file are read."""
        learned = [f for f in features if f.targets] if self.document else []
        missing = [f for f in learned if self._key(f) not in self.backbone.kept]
        file = self._file(missing)
        if missing and file is not None and file.is_file():
            tables, _ = read_tensors(file, bound_to(self.backbone))
            self.backbone.kept.update((bytes.fromhex(key), table) for key, table in tables.items())
            return []
        return missing

    @torch.no_grad()
    def prepare(self, batch: Batch) -> None:
        """Compute the teacher's log-probabilities of a batch."""
        spans = [self._span(f) for f in batch.features]
        for span in dict.fromkeys(spans):
            some = [f for f, view in zip(batch.features, spans, strict=True) if view == span]
            if span is None or self.document is None:
                # learned from their answers: all probability is on the label
                _LOG.warning(
                    "%d rows have no teacher: the document has %d tokens, and backbone=%s reads %d "
                    "of both together; their loss is that of the answer",
                    *(len(some), len(self.document.ids if self.document else ())),
                    *(self.backbone.name, self.room),
                )
                for f in some:
                    ids = torch.zeros(len(f.targets), self.options.kept_tokens)
                    logs = torch.full_like(ids, -torch.inf)
                    ids[:, 0], logs[:, 0] = torch.tensor(f.targets, dtype=ids.dtype), 0.0
                    self.backbone.kept[self._key(f)] = torch.stack([ids, logs])
                continue
            taught = collate(some, None, batch.ids.device)
            rows = BackboneInput(ids=taught.ids, mask=taught.mask, lengths=taught.lengths)
            inputs = self.request(self.document.before(span, rows), taught.reads)
            logits = word_logits(self.backbone.forward(inputs))
            best = logits.log_softmax(dim=-1).topk(min(self.options.kept_tokens, logits.shape[1]))
            table = torch.stack([best.indices.float(), best.values]).cpu()  # exact below 2^24
            sizes = [len(f.targets) for f in some]
            for f, part in zip(some, torch.split(table, sizes, dim=1), strict=True):
                self.backbone.kept[self._key(f)] = part.clone()

    def keep(self, features: Sequence[Features]) -> None:
        """Write the teacher's log-probabilities of examples to their file."""
        file = self._file(features)
        if not features or file is None:
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        tables = {key.hex(): self.backbone.kept[key] for key in map(self._key, features)}
        draft(file, tables, bound_to(self.backbone))()

    def stored(self, train: int, others: int, answer: int) -> int:
        """Return the bytes of the teacher's tokens and log-probabilities, of 4 bytes each."""
        rows = (self.options.self_study or train) + others
        return rows * answer * self.options.kept_tokens * 8

    def _span(self, features: Features) -> Span | None:
        """Return the part of the document in view of an example's teacher; None if none fits.

        A document that does not fit with a row has a teacher in self-study alone, for its parts.
        """
        assert self.document is not None
        start, end = features.facts.get(_SPAN) or (0, len(self.document.ids))
        most = min(self.room, self.backbone.config.get("sliding_window") or self.room)
        return (start, end) if end - start + features.tokens <= most else None

    def _key(self, features: Features) -> bytes:
        (row,) = features.rows
        facts = [self._document, self.options.kept_tokens, features.facts.get(_SPAN)]
        text = json.dumps([*facts, row.ids, row.reads])
        return hashlib.blake2b(text.encode(), digest_size=16).digest()

    @cached_property
    def _document(self) -> str:
        return document.recorded(self.options.document or "")

    def _file(self, features: Iterable[Features]) -> Path | None:
        if self.store is None:
            return None
        hashed = hashlib.sha256(json.dumps(self._made_with()).encode())
        for f in features:
            hashed.update(self._key(f))
        return self.store / f"teacher-{hashed.hexdigest()[:24]}.safetensors"

    def _made_with(self) -> list[str]:
        """Return what identifies the teacher and its precision."""
        weights = self.backbone.model.get_input_embeddings().weight
        return [*bound_to(self.backbone).values(), str(weights.dtype), weights.device.type]

    # Self-study.

    def study(self) -> list[Example]:
        """Return questions that the backbone asks about the document, with its own answers.

        They are written once, and kept in `outputs/.tokens`. Questions and answers without words
        are left out, and repeated questions; the log counts them. An example also has the fields
        `kind` and `part of the document`.
        """
        if self.store is None:
            return self._studied()
        # the name of the file is a hash of all that the questions depend on
        asked = {key: value for key, value in vars(self.options).items() if key != "document"}
        facts = [*self._made_with(), self._document, asked, self.longest, str(self.pvp)]
        hashed = hashlib.sha256(json.dumps(facts, default=str).encode())
        file = self.store / f"study-{hashed.hexdigest()[:24]}.jsonl"
        if file.is_file():
            return [Example(**from_json(line)) for line in read_text(file).splitlines()]
        examples = self._studied()
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, "".join(json.dumps(asdict(e)) + "\n" for e in examples))
        return examples

    def _studied(self) -> list[Example]:
        assert self.document is not None
        size = min(self.options.chunk, self.room // 2)  # the rest is for questions and answers
        turns = document.turns(self.document, self.options.self_study, size)
        rows = []  # the tokens after which the backbone follows an instruction
        for text in (document.SEEDS[kind] for kind, _ in turns):
            if self._chats:
                talk = Conversation([{"role": "user", "content": text}])
                rows.append(self.chat.rows([talk])[0].prompt)
            else:
                plain, tokenizer = f"\n\n{text}\nQuestion:", self.backbone.tokenizer()
                rows.append(tokenizer(plain, add_special_tokens=False).input_ids)
        decoding = Decoding(_QUESTION, temperature=1.0, top_p=0.95)
        seeds = [self.seed(str(i)) for i in range(len(rows))]
        asked = self._written([span for _, span in turns], rows, decoding, seeds)
        distinct = [i for i, text in enumerate(asked) if _has_words(text) and text not in asked[:i]]
        examples = [self._question(i, asked[i], *turns[i]) for i in distinct]
        features = self.encode(examples, self.room)
        rows = [self.prompt(f).rows[0].ids for f in features]
        spans, seeds = [turns[i][1] for i in distinct], [self.seed(f.id) for f in features]
        answers = self._written(spans, rows, self.decoding, seeds)
        pairs = zip(examples, answers, strict=True)
        answered = [replace(e, target=[text]) for e, text in pairs if _has_words(text)]
        _LOG.info(
            "self-study: %d questions with answers; left out: %d questions that are empty or "
            "repeated, and %d without an answer",
            *(len(answered), len(turns) - len(distinct), len(distinct) - len(answered)),
        )
        if not answered:
            raise UserError(
                f"readout.self_study: backbone={self.backbone.name} wrote no questions with "
                "answers about the document. Use a larger model, or rows of your own."
            )
        return answered

    @property
    def room(self) -> int:
        """The most tokens of a row."""
        return self.backbone.shape.positions

    def _question(self, number: int, text: str, kind: str, span: Span) -> Example:
        assert self.document is not None
        field = self.task.fields[0]
        question: Any = [{"role": "user", "content": text}] if self._chats else text
        longest = len(self.document.ids) + _QUESTION + 2 * self.longest
        view = None if longest <= self.room else list(span)  # the whole document, if it can be read
        return Example(f"study-{number}", {field: question, "kind": kind, _SPAN: view}, [])

    def _written(
        self,
        spans: Sequence[Span],
        rows: Sequence[list[int]],
        decoding: Decoding,
        seeds: Sequence[int],
    ) -> list[str]:
        """Return the line that the backbone writes after each row, a part of the document in view.

        A token ends the line, if the vocabulary has one for that.
        """
        assert self.document is not None
        tokenizer = self.backbone.tokenizer()
        ids = tokenizer("\n", add_special_tokens=False).input_ids
        line_end = ids if len(ids) == 1 and tokenizer.decode(ids) == "\n" else []
        decoding = replace(decoding, ends=(*self.decoding.ends, *line_end))
        device = self.backbone.model.get_input_embeddings().weight.device
        tokens: dict[int, list[int]] = {}
        for span in dict.fromkeys(spans):
            places = [place for place, other in enumerate(spans) if other == span]
            for start in range(0, len(places), _TOGETHER):
                some = places[start : start + _TOGETHER]
                features = [Features(str(i), [TokenRow(rows[i])], []) for i in some]
                batch = collate(features, None, device)
                text = BackboneInput(ids=batch.ids, mask=batch.mask, lengths=batch.lengths)
                inputs, drawn = self.document.before(span, text), [seeds[i] for i in some]
                texts = generate(self.backbone, inputs, decoding, drawn)
                tokens |= dict(zip(some, texts, strict=True))
        return [self.text(tokens[i])[0].split("\n")[0].strip() for i in range(len(rows))]

    def encode(self, examples: Sequence[Example], room: int) -> list[Features]:
        """Return the features of each example, with the part of the document that it is about."""
        spans = [example.fields.get(_SPAN) for example in examples]
        return [
            features if span is None else replace(features, facts={**features.facts, _SPAN: span})
            for features, span in zip(super().encode(examples, room), spans, strict=True)
        ]


def _has_words(text: str) -> bool:
    return any(letter.isalpha() or letter.isdigit() for letter in text)
