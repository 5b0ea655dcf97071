"""Waiting requests as batches: rows of all runs share passes, and texts a pass for each token.

One thread reads runs and rows and computes. New texts join those that are written before the next
token: a long answer holds up nobody, and a row whose client left is dropped at the next token.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from ptrun.backbone.base import BackboneInput
from ptrun.backbone.choosing import (
    Decoding,
    Dice,
    TokenScore,
    choose,
    dice_of,
    token_scores,
)
from ptrun.backbone.generation import generate
from ptrun.backbone.grammar import Grammar, spelled
from ptrun.backbone.joining import join
from ptrun.backbone.stepping import Held, begin, regrouped, step
from ptrun.errors import UserError, shown, visible
from ptrun.method.base import Method
from ptrun.pattern.spelling import frame
from ptrun.predicting.rows import Question
from ptrun.predicting.together import Loaded, Together
from ptrun.readout.base import Features, collate
from ptrun.readout.calls import CallForm
from ptrun.serve.prompts import Prompts
from ptrun.serve.structured import Structure
from ptrun.task.conversation import BESIDE
from ptrun.types import Example, Prediction

_LOG = logging.getLogger(__name__)
_AHEAD = 64  # tokens of a text that must fit a batch when it joins
_LATER = "too many rows wait; try again later."
_OF_TOKENS = (
    "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty",
    "frequency_penalty", "logit_bias",
)  # fmt: skip
_APART = 0x9E3779B97F4A7C15  # between the seeds of choices, far from a client's next seed


class QueueFull(Exception):
    """Too many rows wait."""


class TooLong(UserError):
    """A prompt and a first token do not fit the positions of the model."""


@dataclass(frozen=True)
class Wish:
    """How a text is to be written; None leaves the run's own.

    `logprobs` asks for the log-probability of each token, with those of so many likeliest ones.
    `structure` is what the text has to be. With `echo` the prompt stands as it was sent, without
    the run's pattern, and the answer begins with it.
    """

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    repetition_penalty: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: tuple[tuple[int, float], ...] | None = None
    logprobs: int | None = None
    structure: Structure | None = None
    echo: bool = False


@dataclass(eq=False)
class WaitingRow:
    """A row that waits for its answer.

    Args:
        name: the id of its run.
        row: the fields of the run's task; for a chat or a prompt, its turns or text.
        wish: how a text is written.
        uncut: whether a prompt that does not fit is refused, not cut as in training.
        told: receives the text so far, in the thread that computes.
        number: the row's number in its request, from 1.
        choice: which of several texts after the same prompt it is.
    """

    name: str
    row: Mapping[str, Any]
    wish: Wish = Wish()
    uncut: bool = False
    told: Callable[[str], None] | None = None
    number: int = 1
    choice: int = 0
    done: "Future[RowAnswer]" = field(default_factory=Future)
    loaded: Loaded = field(init=False)
    question: Question = field(init=False)
    method: Method = field(init=False)
    features: Features = field(init=False)
    decoding: Decoding | None = None
    dice: Dice | None = None
    form: CallForm | None = None
    grammar: Grammar | None = None
    tokens: list[int] = field(default_factory=list)
    prompt_scores: tuple[TokenScore | None, ...] | None = None
    scores: list[TokenScore] = field(default_factory=list)
    ready: bool = False
    since: float = field(default_factory=time.monotonic)
    shortened: bool = False

    @property
    def left(self) -> int:
        """The tokens that may still be written."""
        return 0 if self.decoding is None else self.decoding.max_new_tokens - len(self.tokens)

    @property
    def unscored(self) -> bool:
        """Whether the tokens of the prompt have to be scored before anything is written."""
        asked = self.wish.logprobs is not None or not self.left
        return self.wish.echo and self.prompt_scores is None and asked

    @property
    def is_plain(self) -> bool:
        """Whether the likeliest token is written, whatever was written before."""
        usual = self.decoding and replace(self.decoding, max_new_tokens=1, stop=(), ends=())
        return usual == Decoding(1) and self.grammar is None

    @property
    def size(self) -> int:
        """The tokens of the row, with some of those that will be written."""
        return self.features.tokens + len(self.tokens) + min(_AHEAD, self.left)

    @property
    def steps(self) -> bool:
        """Whether a text is written token by token, with others; beams write a whole text."""
        return self.decoding is not None and self.decoding.beams == 1 and not self.unscored

    @property
    def kind(self) -> Decoding | None:
        """What rows have in common that are computed together; None if they have no texts, yet."""
        if self.decoding is None or self.unscored:
            return None
        # each looks for its own stop texts
        alike = Decoding() if self.steps else self.decoding
        return replace(alike, max_new_tokens=0, stop=())


@dataclass(frozen=True)
class RowAnswer:
    """An answer: its run, row and prediction; of a text its tokens, and whether it has its end.

    `shortened` says that the row was too long and was cut, as in training. `scores` are those of
    the written tokens, and `prompt_scores` those of the prompt's, where they were asked for. `form`
    is that of calls, which the text may hold with its special tokens.
    """

    loaded: Loaded
    question: Question
    prediction: Prediction
    prompt_tokens: int
    tokens: int = 0
    ended: bool = True
    shortened: bool = False
    scores: tuple[TokenScore, ...] | None = None
    prompt_scores: tuple[TokenScore | None, ...] | None = None
    form: CallForm | None = None


class Batches:
    """Computes jobs in a thread of its own.

    Args:
        prompts: the runs.
        budget: tokens of a batch.
        wait: seconds that a first row waits for others.
        most: rows that may wait.
        longest: the most tokens of a written text.
    """

    def __init__(self, prompts: Prompts, *, budget: int, wait: float, most: int, longest: int):
        self.prompts, self.budget, self.wait = prompts, budget, wait
        self.most, self.longest = most, longest
        self.waiting: deque[WaitingRow] = deque()
        self.texts = _Texts(prompts.shared)
        self.rows = self.batches = 0
        self._changed = threading.Condition()
        self._open = True
        self._grammars = ThreadPoolExecutor(1)  # a large one would hold up all rows
        self._thread = threading.Thread(target=self._run, name="ptrun-serve", daemon=True)
        self._thread.start()

    @property
    def written(self) -> int:
        """The tokens that were written so far."""
        return self.texts.written

    def add(self, jobs: Sequence[WaitingRow]) -> None:
        """Add rows.

        Raises:
            QueueFull: too many wait, or the server ends.
        """
        with self._changed:
            if len(self.waiting) + len(jobs) > self.most or not self._open:
                raise QueueFull(_LATER)
            self.waiting.extend(jobs)
            self._changed.notify()

    def close(self) -> None:
        """Compute what waits, and end the thread."""
        self._grammars.shutdown()
        with self._changed:
            self._open = False
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self.waiting or self.texts.jobs or not self._open)
                if not self.waiting and not self.texts.jobs:
                    return
                left = 0.0
                if not self.texts.jobs:
                    left = self.waiting[0].since + self.wait - time.monotonic()
            if left > 0:
                time.sleep(left)  # others may come
            self._compute(self._taken())
            self._write()

    def _taken(self) -> list[WaitingRow]:
        """Return the rows of a batch, first come first served; those that are gone are dropped.

        Texts must also fit beside those that are being written, and others need not wait for them.
        """
        taken: list[WaitingRow] = []
        later: list[WaitingRow] = []
        tokens, held = 0, sum(job.size for job in self.texts.jobs if not job.done.done())
        while job := self._next():
            full = bool(taken) and tokens + job.size > self.budget
            if job.steps and (later or (held and held + job.size > self.budget)):
                later.append(job)
                continue
            if full:
                later.append(job)
                break
            taken.append(job)
            tokens, held = tokens + job.size, held + job.size * job.steps
        with self._changed:
            self.waiting.extendleft(reversed(later))
        return taken

    def _next(self) -> WaitingRow | None:
        """Return the next row that can be answered; the others get their error."""
        while True:
            with self._changed:
                job = self.waiting.popleft() if self.waiting else None
            if job is None:
                return None
            if job.done.done():
                continue
            try:
                if not job.ready:
                    self._read(job)
                if job.ready:
                    return job
            except Exception as error:  # nothing may end the thread that computes
                if not isinstance(error, UserError):
                    name = visible(job.name)
                    _LOG.warning("a row of %s could not be read", name, exc_info=True)
                _fail(job, error)

    def _read(self, job: WaitingRow) -> None:
        """Load the run of a row, and read the row as its task does, or as it stands with `echo`."""
        job.loaded = self.prompts.get(job.name)
        if job.wish.echo:
            job.method = job.loaded.scored
            fields = {"ids": _ids(job.loaded, job.row["prompt"]), "top": job.wish.logprobs or 0}
            example = Example(str(job.number), fields, None)
            job.question = Question(job.number, example, job.number, job.row)
            readout: Any = job.loaded.methods[""].readout
            (prompt,) = job.method.encode([job.question.example])
        else:
            shorthand = job.uncut or [*job.row] == ["prompt"]  # else the fields of the task
            row = _fields(job.loaded, job.row) if shorthand else job.row
            (job.question,) = job.loaded.asked([row], job.number)
            job.method = job.loaded.method(job.question.example)
            (whole,) = job.method.encode([job.question.example], whole=True)
            readout, job.features = job.method.readout, whole
            if not (readout.writes and job.uncut):
                (job.features,) = job.method.encode([job.question.example])
                job.shortened = job.features.tokens < whole.tokens
            if not readout.writes:
                job.ready = True
                return
            prompt = readout.prompt(job.features)
        left = _left(job.method, prompt)
        if left < (0 if job.wish.max_tokens == 0 else 1):
            room = f"{job.method.room():,} tokens, with one for the answer"
            raise TooLong(f"the prompt has {prompt.tokens:,} tokens; {job.loaded.id} reads {room}.")
        end = job.method.backbone.tokenizer().eos_token_id
        usual = readout.decoding if readout.writes else Decoding(ends=() if end is None else (end,))
        drawn = readout.seed(prompt.id) if readout.writes else 0
        seed = drawn if job.wish.seed is None else job.wish.seed
        job.dice = dice_of(seed + job.choice * _APART)
        job.decoding = self._decoding(usual, job.wish, left)
        structure = job.wish.structure
        follows = structure is not None and structure.constrains
        if job.decoding.beams > 1 and job.left and (follows or job.wish.logprobs is not None):
            raise UserError(
                f"{job.loaded.id} searches with {job.decoding.beams} beams, which have no logprobs "
                "and follow no response_format or tools. Send temperature 0 to do without beams."
            )
        job.features = prompt
        job.form = structure.reader(readout.calls) if structure and structure.tools else None
        job.ready = not follows
        if follows:
            self._grammars.submit(self._follow, job)

    def _follow(self, job: WaitingRow) -> None:
        """Read the grammar of a row, which then waits again."""
        structure, decoding = job.wish.structure, job.decoding
        assert structure is not None and decoding is not None
        try:
            tokenizer = job.method.backbone.tokenizer()
            text = structure.grammar(job.form, partial(spelled, tokenizer, decoding.ends))
            job.grammar = Grammar(tokenizer, decoding.ends, text)
            job.ready = True
            with self._changed:
                self.waiting.appendleft(job)
                self._changed.notify()
        except UserError as error:
            _fail(job, UserError(f"{structure.key}: {error}"))
        except RecursionError:
            _fail(job, UserError(f"{structure.key}: its schema is nested too deeply."))
        except BaseException as error:  # the library is no Python
            _fail(job, error)

    def _decoding(self, usual: Decoding, wish: Wish, left: int) -> Decoding:
        """Return how a text is written: the run's own way, but for what is wished."""
        most = usual.max_new_tokens if wish.max_tokens is None else wish.max_tokens
        changes: dict[str, Any] = {
            "max_new_tokens": min(most, self.longest, left),
            "stop": (*usual.stop, *wish.stop),
        }
        if wish.temperature is not None:
            changes["beams"] = 1
        for key in _OF_TOKENS:
            if (value := getattr(wish, key)) is not None:
                changes[key] = value
        return replace(usual, **changes)

    def _compute(self, jobs: Sequence[WaitingRow]) -> None:
        """Compute a batch; where that fails each row is tried alone, so that one fails alone."""
        if not jobs:
            return
        self.rows, self.batches = self.rows + len(jobs), self.batches + 1
        groups: dict[Decoding | None, list[WaitingRow]] = {}
        for job in jobs:
            groups.setdefault(job.kind, []).append(job)
        for alike in groups.values():
            try:
                again = self._step(alike, self.texts)
                with self._changed:
                    self.waiting.extend(again)
            except Exception as error:
                _LOG.warning("a batch of %d rows failed", len(alike), exc_info=True)
                if len(alike) == 1:
                    _fail(alike[0], error)
                self._alone(alike)

    def _write(self) -> None:
        """Give each text its next token; those for which there is no room left wait again."""
        texts = self.texts
        try:
            again = texts.step(self.budget)
            with self._changed:
                self.waiting.extendleft(reversed(again))
        except Exception:
            _LOG.warning("a batch of %d texts failed", len(texts.jobs), exc_info=True)
            self.texts = _Texts(self.prompts.shared, texts.written)
            self._alone(texts.jobs)

    def _alone(self, jobs: Sequence[WaitingRow]) -> None:
        """Compute rows one by one; of a text some tokens, after which it joins others again."""
        for job in jobs:
            texts = _Texts(self.prompts.shared)
            try:
                if not job.done.done():
                    self._step([job], texts)
                for _ in range(_AHEAD):
                    texts.step(self.budget)
            except Exception as error:
                _fail(job, error)
            self.texts.written += texts.written
            if not job.done.done():
                with self._changed:
                    self.waiting.appendleft(job)

    def _step(self, jobs: Sequence[WaitingRow], texts: "_Texts") -> list[WaitingRow]:
        """Answer or score rows of one kind, and return those that wait for a text after it.

        Texts get their first tokens, and their next ones in `texts`.
        """
        shared, decoding = self.prompts.shared, jobs[0].kind
        if decoding is None:
            answers = shared.answers([(job.method, job.features) for job in jobs])
            for job, answer in zip(jobs, answers, strict=True):
                if job.unscored:
                    *scores, after = answer.value
                    job.prompt_scores = (None, *scores)
                    if job.left == 1 and job.is_plain:  # as a harness asks: one pass is enough
                        job.tokens.append(after.token)
                        job.scores.append(after)
                        texts.written += 1
                        _tell(job)
                        continue
                    answer = Prediction(answer.id, "", figures={"unfinished": 1.0})
                if job.left <= 0:
                    _give(job, answer)
        elif jobs[0].steps:
            texts.join(jobs)
        else:
            jobs = _by_method(jobs)
            decoding = replace(decoding, max_new_tokens=max(job.left for job in jobs))
            with shared.engine.precise():
                written = generate(shared.backbone, _joined(jobs), decoding)
            for job, row in zip(jobs, written, strict=True):
                job.tokens = row[: job.left]
                texts.written += len(row)
                _tell(job, whole=True)
        return [job for job in jobs if decoding is None and job.left > 0]


class _Texts:
    """Texts that are being written: rows of any settings share the pass of a token.

    `jobs` may have rows that are done, until the next step.
    """

    def __init__(self, shared: Together, written: int = 0):
        self.shared, self.written = shared, written
        self.jobs: list[WaitingRow] = []
        self._held: list[Held] = []  # what the jobs have read, in their order
        self._inputs: Any = None  # those of the jobs, in their order

    def join(self, jobs: Sequence[WaitingRow]) -> None:
        """Write a token of new texts, which are then written with the others."""
        jobs = _by_method(jobs)
        held, logits = self._read(jobs)
        self._extend(jobs, logits)
        self.jobs, self._held = [*self.jobs, *jobs], [*self._held, *held]
        self._inputs = None

    def step(self, most: int) -> list[WaitingRow]:
        """Write a token of each text; return the last ones, if `most` tokens do not hold all."""
        tokens = 0
        staying: list[WaitingRow] = []
        waiting = [job for job in self.jobs if not job.done.done()]
        for job in sorted(waiting, key=lambda job: job.since):
            tokens += job.features.tokens + len(job.tokens)
            staying += [job] if tokens <= most or not staying else []
        jobs = _by_method(staying)
        if jobs and self.shared.backbone.architecture.has_blank:
            self._extend(jobs, self._read(jobs)[1])
        elif jobs:
            if jobs != self.jobs or self._inputs is None:
                self._inputs = None  # its prefixes may be large
                places = {id(job): place for place, job in enumerate(self.jobs)}
                self._held = [regrouped(self._held, [places[id(job)] for job in jobs])]
                self._inputs = _joined(jobs, so_far=False)
            last = [job.tokens[-1] for job in jobs]
            with self._precise():
                logits = step(self.shared.backbone, self._held[0], self._inputs, last)
            self._extend(jobs, logits)
        self.jobs = jobs
        if not jobs:
            self._held, self._inputs = [], None
        return [job for job in waiting if job not in staying]

    @contextmanager
    def _precise(self) -> Iterator[None]:
        self.shared.backbone.model.eval()
        with torch.no_grad(), self.shared.engine.precise():
            yield

    def _read(self, jobs: Sequence[WaitingRow]) -> tuple[list[Held], Tensor]:
        """Read rows with what is written so far; a blank infiller reads them at each step."""
        backbone = self.shared.backbone
        with self._precise():
            if backbone.architecture.has_blank:
                (logits,) = backbone.forward(_joined(jobs)).tensors
                return [], logits
            held, logits = begin(backbone, _joined(jobs))
            return [held], logits

    def _extend(self, jobs: Sequence[WaitingRow], logits: Tensor) -> None:
        """Add a token to each text; one that has its end is the answer."""
        dice = [job.dice for job in jobs if job.dice]
        states = [own.get_state() for own in dice]
        try:
            tokens = choose(logits, jobs)
            scores = [
                [] if top is None else token_scores(row[None], [token], top)
                for row, token, top in zip(
                    logits, tokens, [j.wish.logprobs for j in jobs], strict=True
                )
            ]
        except Exception:
            for own, state in zip(dice, states, strict=True):
                own.set_state(state)
            raise
        self.written += len(jobs)
        for job, token, more in zip(jobs, tokens, scores, strict=True):
            job.tokens.append(token)
            job.scores += more
            _tell(job)


def _fields(loaded: Loaded, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a row of the run's task; a prompt or the turns of a chat become its field."""
    task = loaded.run.task
    fields = [field for field in task.reads if field not in task.optional]
    talks = not task.pvps and task.answer == "text"
    if not talks and (others := [turn["role"] for turn in row.get("messages", [])][:-1]):
        raise UserError(
            f"{loaded.id} was not trained on conversations and reads one text, so the turns before "
            f"the last one ({', '.join(others[:5])}) would have no effect. Leave them out."
        )
    if len(fields) != 1:
        raise UserError(
            f"{loaded.id} reads the fields {', '.join(fields)}, so a prompt is not enough. Use "
            "/v1/predict with these fields."
        )
    prompt = row.get("prompt")
    if isinstance(prompt, list):
        ids, begin = _ids(loaded, prompt), frame(loaded.run.backbone.tokenizer(), 1).ids[0]
        prompt = _text_of(loaded, ids[len(begin) :] if ids[: len(begin)] == begin else ids)
    turns = row.get("messages", [{"role": "user", "content": prompt}])
    beside = {key: value for key, value in row.items() if key in BESIDE}
    if talks:
        return {**beside, fields[0]: turns}
    if beside:
        key = next(iter(beside))
        raise UserError(f"{key}: {loaded.id} was not trained on conversations and reads none.")
    content = turns[-1]["content"]
    is_parts = isinstance(content, list)
    return {fields[0]: "".join(part["text"] for part in content) if is_parts else content}


def _ids(loaded: Loaded, prompt: str | Sequence[Any]) -> list[int]:
    """Return the token ids of a prompt as it stands: its own, or those of its text alone."""
    backbone = loaded.run.backbone
    tokenizer = backbone.tokenizer()
    most = min(len(tokenizer), backbone.embedding_rows)
    ids = prompt
    if isinstance(prompt, str):  # a client counts with tokens that it sees in its text
        ids = tokenizer(prompt, add_special_tokens=False, verbose=False)["input_ids"]
    if not ids:
        raise UserError(f"prompt is {shown(prompt)}, which has no token.")
    for token in ids:
        if type(token) is not int or not 0 <= token < most:
            raise UserError(
                f"prompt has the token id {shown(token)}; {loaded.id} has those from 0 to "
                f"{most - 1}."
            )
    return list(ids)


def _text_of(loaded: Loaded, ids: Sequence[int]) -> str:
    """Return the text of token ids."""
    tokenizer = loaded.run.backbone.tokenizer()
    return str(tokenizer.decode(ids, clean_up_tokenization_spaces=False))


def _by_method(jobs: Sequence[WaitingRow]) -> list[WaitingRow]:
    """Return rows with those of a method beside each other."""
    groups: dict[int, list[WaitingRow]] = {}
    for job in jobs:
        groups.setdefault(id(job.method), []).append(job)
    return [job for group in groups.values() for job in group]


def _joined(jobs: Sequence[WaitingRow], *, so_far: bool = True) -> BackboneInput:
    """Return the input of rows in the order of their methods, with what is written so far."""
    backbone = jobs[0].method.backbone
    device = backbone.model.get_input_embeddings().weight.device
    parts = []
    for _, group in groupby(jobs, key=lambda job: id(job.method)):
        own = list(group)
        rows = [_so_far(job.features, job.tokens) if so_far else job.features for job in own]
        parts.append(own[0].method.inputs(collate(rows, None, device)))
    return join(parts, backbone.embed)


def _so_far(features: Features, tokens: Sequence[int]) -> Features:
    """Return a prompt with the tokens that are written after it."""
    (row,) = features.rows
    if row.decoder is not None:
        decoder = [*row.decoder, *tokens]
        row = replace(row, decoder=decoder, reads=[len(decoder) - 1])
    else:
        ids = [*row.ids, *tokens]
        types = row.types and [*row.types, *row.types[-1:] * len(tokens)]
        row = replace(row, ids=ids, types=types, reads=[len(ids) - 1])
    return replace(features, rows=[row])


def _tell(job: WaitingRow, *, whole: bool = False) -> None:
    """Tell a stream the text so far; a text that has its end, or no room left, is the answer."""
    try:
        text, ended = _text(job)
        if job.told is not None and not job.done.cancelled():
            job.told(_sure(text, job.decoding))
        if whole or ended or job.left <= 0:
            figures = {"unfinished": float(not ended)}
            _give(job, Prediction(job.question.example.id, text, figures=figures))
    except Exception as error:
        _fail(job, error)


def _text(job: WaitingRow) -> tuple[str, bool]:
    """Return the text so far, up to a stop text, and whether it has its end."""
    assert job.decoding is not None
    ended = bool(job.tokens) and job.tokens[-1] in job.decoding.ends
    tokenizer, before, plain = job.method.backbone.tokenizer(), [], job.form is None
    if job.wish.echo:  # a space may stand between the prompt and its first token
        before = job.features.rows[0].ids
    start = len(tokenizer.decode(before, skip_special_tokens=plain))
    text = tokenizer.decode([*before, *job.tokens], skip_special_tokens=plain)[start:]
    for stop in job.decoding.stop:
        text, mark, _ = text.partition(stop)
        ended = ended or bool(mark)
    return text if job.wish.echo else text.strip(), ended


def _sure(text: str, decoding: Decoding | None) -> str:
    """Return a text without an end that may be the beginning of a stop text."""
    stops = decoding.stop if decoding else ()
    held = (n for stop in stops for n in range(1, len(stop)) if text.endswith(stop[:n]))
    return text[: len(text) - max(held, default=0)].rstrip()  # as the whole text is


def _left(method: Method, prompt: Features) -> int:
    """Return how many tokens may be written after a prompt."""
    (row,), room = prompt.rows, method.room()
    if method.backbone.architecture.has_decoder and not method.backbone.architecture.has_blank:
        return room if len(row.ids) <= room else 0
    return room - len(row.ids)


def _give(job: WaitingRow, prediction: Prediction) -> None:
    if job.wish.echo:
        prompt = job.row["prompt"]
        prompt = prompt if isinstance(prompt, str) else _text_of(job.loaded, prompt)
        prediction = replace(prediction, value=prompt + prediction.value)
    if job.done.set_running_or_notify_cancel():
        ended = not prediction.figures.get("unfinished", 0.0)
        counts = (job.features.tokens, len(job.tokens))
        answer = RowAnswer(job.loaded, job.question, prediction, *counts, ended, job.shortened)
        if job.wish.logprobs is not None:
            answer = replace(answer, scores=tuple(job.scores), prompt_scores=job.prompt_scores)
        job.done.set_result(replace(answer, form=job.form))


def _fail(job: WaitingRow, error: BaseException) -> None:
    if not job.done.done() and job.done.set_running_or_notify_cancel():
        job.done.set_exception(error)
