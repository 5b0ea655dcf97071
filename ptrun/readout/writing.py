"""`readout=writing`: the answer is a text that the backbone writes.

Trained on the tokens of the answer and its end. A causal model reads text and answer in one row; an
encoder-decoder reads the text, and its decoder the answer. What is written in evaluation is in
`ptrun.backbone.generation`.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from torch import Tensor
from torch.nn import functional

from ptrun.backbone.base import BackboneOutput
from ptrun.backbone.choosing import Decoding
from ptrun.backbone.generation import writes
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.pattern.pattern import PVP
from ptrun.readout.base import Batch, Features, TokenRow, word_logits
from ptrun.readout.calls import CallForm
from ptrun.readout.chat import DATE, Chat, ChatRow, stored_template
from ptrun.readout.cloze import Cloze
from ptrun.readout.head import row_limit
from ptrun.readout.languages import tokenizer_of
from ptrun.readout.patterns import choose
from ptrun.readout.reading import Reading
from ptrun.task.conversation import ANSWER, Conversation
from ptrun.task.dataset import MESSAGES, Task
from ptrun.types import Example, Prediction

LossOn = Literal["answer", "all"]
_SHARE, _USUAL = 4, 128  # the answer's part of a model's positions, and the most by default
_CHAT = ("turns", "thinking", "system", "date")
_DECODING = ("beams", "temperature", "top_k", "top_p", "repetition_penalty", "length_penalty")


@dataclass(frozen=True, kw_only=True)
class WritingReading(Reading):
    """The answer is written, token by token.

    Args:
        pattern: a name in the task's `pvps`; null is the first that suits.
        loss_on: `answer`, or `all` tokens of the row, as PEFT's comparison trains.
        max_new_tokens: the most tokens of a written text, and of a learned one; null is 128, or a
            quarter of the backbone's positions if that is less.
        write_every: evaluations on dev from one at which texts are written to the next. Null is 1
            with `train.select=metric`, which needs them, else none before the last.
        beams, temperature, top_k, top_p, repetition_penalty, length_penalty, stop: see
            `ptrun.backbone.choosing.Decoding`.
        draw: the seed of sampling.
        chat_template, turns, thinking, system, date: of conversations; see
            `ptrun.readout.chat.Chat`. `@FILE` and `chatml` are stored as the template's text.

    >>> from ptrun.readout.writing import WritingReading
    >>> WritingReading(beams=2, max_new_tokens=32).changed
    {'max_new_tokens': 32, 'beams': 2}
    """

    name = "writing"
    answers = ("text",)
    tunes_head = True

    pattern: str | None = None
    loss_on: LossOn = "answer"
    max_new_tokens: int | None = None
    write_every: int | None = None
    beams: int = 1
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float = 1.0
    length_penalty: float = 1.0
    stop: list[str] | None = None
    draw: int = 0
    chat_template: str | None = None
    turns: Literal["all", "last"] = "all"
    thinking: Literal["drop", "keep"] = "drop"
    system: Literal["turn", "first_user"] = "turn"
    date: str = DATE

    def used(self, backbone: PretrainedBackbone, task: Task, *, soft: bool) -> set[str]:
        """Return the keys that change a number: those of sampling need a temperature.

        A backbone that cannot write and values out of range are refused.
        """
        family = backbone.architecture
        if not writes(family):
            raise UserError(
                f"backbone={backbone.name} ({backbone.family}) writes no texts; use a causal model "
                "or an encoder-decoder, such as backbone=pocket_gpt2 or t5_base_lm_adapt."
            )
        chats = MESSAGES in task.fields
        if chats and (family.writes_apart or soft):
            who = "a causal model" if family.writes_apart else "another method, such as lora"
            raise UserError(f"task={task.name} holds conversations, which need {who}.")
        self._pvp(backbone, task, soft)
        for key in ("beams", "max_new_tokens", "write_every", "top_k", "temperature"):
            low = int(key != "temperature")
            if (value := getattr(self, key)) is not None and value < low:
                raise UserError(f"readout.{key} is {value}; use {low} or more.")
        for key, most in (("top_p", 1.0), ("repetition_penalty", math.inf)):
            if (value := getattr(self, key)) is not None and not 0 < value <= most:
                limit = f" and at most {most:g}" * math.isfinite(most)
                raise UserError(f"readout.{key} is {value}; use more than 0{limit}.")
        if self.temperature and self.beams > 1:
            raise UserError("readout.temperature samples, readout.beams does not: leave one out.")
        keys = {"loss_on", "max_new_tokens", "write_every", "beams", "repetition_penalty", "stop"}
        keys |= {"temperature", *(("top_k", "top_p", "draw") if self.temperature else ())}
        keys |= {"length_penalty"} if self.beams > 1 else set()
        keys |= {"date", "chat_template", *_CHAT} if chats else {"pattern"}
        return keys - ({"loss_on"} if family.writes_apart else set())

    def stored(self, backbone: PretrainedBackbone) -> dict[str, Any]:
        """Return the changed keys, with the text of a chat template in place of its file."""
        if self.chat_template is None:
            return self.changed
        return {**self.changed, "chat_template": stored_template(backbone, self.chat_template)}

    def made(self, backbone: PretrainedBackbone, task: Task, *, soft: bool) -> "Writing":
        """Return the read-out."""
        return Writing(backbone, task, self._pvp(backbone, task, soft), self)

    def _pvp(self, backbone: PretrainedBackbone, task: Task, soft: bool) -> PVP | None:
        """Return the pattern; None for conversations, which have the tokenizer's form."""
        chats = MESSAGES in task.fields
        return None if chats else choose(task, backbone, soft=soft, name=self.pattern)


class Writing(Cloze):
    """Learns and writes answers; `options` are the keys of `readout`.

    >>> from ptrun.testing import read
    >>> method, batch, output = read("method=lora", "task=pocket_writing", "backbone=pocket_gpt2")
    >>> output.logits.shape[0] == len(batch.targets), method.readout.longest  # [K, V]
    (True, 64)
    """

    writes = True
    options: WritingReading

    def __init__(
        self, backbone: PretrainedBackbone, task: Task, pvp: PVP | None, options: WritingReading
    ):
        super().__init__(backbone, task, pvp, options)  # type: ignore[arg-type]
        self._chats = MESSAGES in task.fields
        self.write_every = options.write_every
        usual = max(1, min(_USUAL, backbone.shape.positions // _SHARE))
        self.longest = options.max_new_tokens or usual
        self.studies = getattr(options, "self_study", 0) > 0
        self.everywhere = options.loss_on == "all" and not self.decodes

    @cached_property
    def decoding(self) -> Decoding:
        """How tokens are chosen."""
        keys = {key: getattr(self.options, key) for key in _DECODING}
        ends = {self._end, *(self.chat.ends if self._chats else ())}
        stop = tuple(self.options.stop or ())
        return Decoding(self.longest, ends=tuple(sorted(ends)), stop=stop, **keys)

    @cached_property
    def chat(self) -> Chat:
        """The tokenizer's form of a conversation."""
        tokenizer_of(self.backbone, self.task)  # refuses languages
        options = {key: getattr(self.options, key) for key in _CHAT}
        chat = Chat(backbone=self.backbone, template=self.options.chat_template, **options)
        chat.check()
        return chat

    @cached_property
    def calls(self) -> CallForm:
        """How its chat template writes calls; refuse one that has none."""
        return CallForm.of(self.chat)

    @cached_property
    def _end(self) -> int:
        """The token that ends an answer."""
        if self.infills:
            assert self.end is not None  # checked with the tokenizer
            return self.end
        tokenizer = self.backbone.tokenizer()
        end = tokenizer.eos_token_id
        end = tokenizer.sep_token_id if end is None else end
        if end is None:
            raise UserError(
                f"backbone={self.backbone.name}: its tokenizer has no token that ends a text "
                "(eos_token), so nothing would end what is written."
            )
        return int(end)

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return cross-entropy summed over the learned tokens, `[]`."""
        return functional.cross_entropy(word_logits(output), batch.targets, reduction="sum")

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return the loss of each answer; its text is written apart."""
        losses = functional.cross_entropy(word_logits(output), batch.targets, reduction="none")
        return [
            Prediction(f.id, None, figures={"loss": float(part.sum()), "tokens": len(part)})
            for f, part in batch.pairs(losses.cpu())
        ]

    def prompt(self, features: Features) -> Features:
        """Return an example without its answer, read at its last token."""
        (row,), facts = features.rows, features.facts
        if row.decoder is not None:
            begin, _ = self.answer_frame
            row = replace(row, decoder=begin, reads=[len(begin) - 1])
        else:
            ids = facts["ids"] if "ids" in facts else row.ids[: facts["prompt"]]
            row = replace(row, ids=ids, reads=[len(ids) - 1])
        return replace(features, rows=[row], targets=[])

    def seed(self, name: str) -> int:
        """Return the seed of the draws of an example, from its id."""
        hashed = hashlib.blake2b(f"{self.options.draw}:{name}".encode(), digest_size=8)
        return int.from_bytes(hashed.digest())

    def answer(self, prediction: Prediction, features: Features, tokens: list[int]) -> Prediction:
        """Return the prediction with the text that is written, and whether it has an end."""
        text, ended = self.text(tokens)
        figures = {**prediction.figures, "unfinished": float(not ended)}
        reference = features.facts.get("reference")
        return replace(prediction, value=text, figures=figures, reference=reference)

    def text(self, tokens: Sequence[int]) -> tuple[str, bool]:
        """Return the text of written tokens, and whether it has an end."""
        tokenizer, ends = self.backbone.tokenizer(), self.decoding.ends
        ended = bool(tokens) and tokens[-1] in ends
        text: str = tokenizer.decode(list(tokens), skip_special_tokens=True)
        for stop in self.decoding.stop:
            before, stopped, _ = text.partition(stop)
            text, ended = before, ended or bool(stopped)
        return text.strip(), ended

    def encode(self, examples: Sequence[Example], room: int) -> list[Features]:
        """Return the features of each example; conversations are rendered together."""
        if not (self._chats and examples):
            return super().encode(examples, room)
        rows = self.chat.rows(list(map(Conversation.of, examples)), [e.id for e in examples])
        limit = row_limit(self.task, room)
        return [self._conversation(e, row, limit) for e, row in zip(examples, rows, strict=True)]

    def _features(self, example: Example, room: int) -> Features:
        apart = self.decodes and not self.infills  # else text and answer share the positions
        row = self.row(self.pieces(example), room, answer=0 if apart else self.longest)
        tokens: list[int] = []
        cut = False  # a long answer has no end
        if example.target:
            spaced = self.pvp.pattern.text.rstrip().endswith(" {mask}") and not self.decodes
            text = example.target[0].strip()
            answer = self.encoder.spelling.ids(text, spaced=spaced, opens=self.decodes)
            tokens, cut = [*answer, self._end][: self.longest], len(answer) >= self.longest
        if self.decodes:
            (start, *before), after = self.answer_frame
            tokens = [*before, *tokens, *([] if cut else after)] if tokens else []
            decoder = [start, *(tokens[:-1] or before)]
            row = replace(row, decoder=decoder, reads=list(range(len(decoder))))
            return Features(example.id, [row], tokens, {"prompt": len(row.ids), "cut": cut})
        prompt = row.ids[: row.reads[-1] + 1]
        ids = [*prompt, *tokens]
        start = 1 if self.options.loss_on == "all" and tokens else len(prompt)
        learned = [i for i in range(start, len(ids)) if i not in row.softs]
        features = _read(example, ids, learned, len(prompt), row.softs)
        return replace(features, facts={**features.facts, "cut": cut})

    def _conversation(self, example: Example, row: ChatRow, limit: int) -> Features:
        """Return the whole conversation, and where its last answer begins; a long one is cut."""
        prompt, ids, learned = row.prompt[-(limit - self.longest) :], row.ids, row.learned
        if not example.target:
            return _read(example, prompt, [], len(prompt))
        learned = list(range(1, len(ids))) if self.options.loss_on == "all" else learned
        cut = [i for i in learned if 0 < i < limit]
        if not cut:
            raise UserError(
                f"{example.id}: its {len(ids)} tokens do not fit {limit} positions: no token of "
                "the assistant is left. Leave the row out, or use a larger task.max_tokens."
            )
        features = _read(example, ids[:limit], cut, len(prompt))
        facts = {"ids": prompt, "cut": len(ids) > limit, "ends": row.ends}
        if ANSWER in example.fields or self.options.thinking == "keep":
            answer = [ids[i] for i in row.learned if i >= row.answer and i not in row.ends]
            facts["reference"] = self.text(answer)[0]
        return replace(features, facts=facts)


def _read(
    example: Example, tokens: list[int], learned: list[int], prompt: int, softs: Sequence[int] = ()
) -> Features:
    """Return the features of a row of tokens, some of which are learned."""
    ids = tokens[:-1] if learned and learned[-1] == len(tokens) - 1 else tokens
    reads = [i - 1 for i in learned] or [prompt - 1]
    row = TokenRow(ids, reads=reads, softs=list(softs))
    return Features(example.id, [row], [tokens[i] for i in learned], {"prompt": prompt})
