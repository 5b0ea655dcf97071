"""Waiting requests as batches: rows of all runs share passes, and texts a pass for each token.

One thread reads runs and rows and computes. New texts join those that are written before the next
token: a long answer holds up nobody, and a row whose client left is dropped at the next token.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from ptrun.backbone.base import BackboneInput
from ptrun.backbone.choosing import Decoding, choose, token_scores
from ptrun.backbone.generation import generate
from ptrun.backbone.joining import join
from ptrun.backbone.stepping import Held, begin, regrouped, step
from ptrun.errors import UserError, visible
from ptrun.predicting.together import Together
from ptrun.readout.base import Features, collate
from ptrun.serve.prompts import Prompts
from ptrun.serve.reading import follow, read
from ptrun.serve.rows import AHEAD, WaitingRow
from ptrun.types import Prediction

_LOG = logging.getLogger(__name__)
_LATER = "too many rows wait; try again later."


class Texts:
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
        jobs = by_method(jobs)
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
        jobs = by_method(staying)
        if jobs and self.shared.backbone.architecture.rereads:
            self._extend(jobs, self._read(jobs)[1])
        elif jobs:
            if jobs != self.jobs or self._inputs is None:
                self._inputs = None  # its prefixes may be large
                places = {id(job): place for place, job in enumerate(self.jobs)}
                self._held = [regrouped(self._held, [places[id(job)] for job in jobs])]
                self._inputs = joined(jobs, so_far=False)
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
        """Read rows with what is written so far; some families read them at each step."""
        backbone = self.shared.backbone
        with self._precise():
            if backbone.architecture.rereads:
                (logits,) = backbone.forward(joined(jobs)).tensors
                return [], logits
            held, logits = begin(backbone, joined(jobs))
            return [held], logits

    def _extend(self, jobs: Sequence[WaitingRow], logits: Tensor) -> None:
        """Add a token to each text; one that has its end is the answer."""
        dice = [job.dice for job in jobs if job.dice]
        states = [die.get_state() for die in dice]
        try:
            tokens = choose(logits, jobs)
            scores = [
                [] if top is None else token_scores(row[None], [token], top)
                for row, token, top in zip(
                    logits, tokens, [j.wish.logprobs for j in jobs], strict=True
                )
            ]
        except Exception:
            for die, state in zip(dice, states, strict=True):
                die.set_state(state)
            raise
        self.written += len(jobs)
        for job, token, more in zip(jobs, tokens, scores, strict=True):
            job.tokens.append(token)
            job.scores += more
            job.tell()


def by_method(jobs: Sequence[WaitingRow]) -> list[WaitingRow]:
    """Return rows with those of a method beside each other."""
    groups: dict[int, list[WaitingRow]] = {}
    for job in jobs:
        groups.setdefault(id(job.method), []).append(job)
    return [job for group in groups.values() for job in group]


def joined(jobs: Sequence[WaitingRow], *, so_far: bool = True) -> BackboneInput:
    """Return the input of rows in the order of their methods, with what is written so far."""
    backbone = jobs[0].method.backbone
    device = backbone.model.get_input_embeddings().weight.device
    parts = []
    for _, group in groupby(jobs, key=lambda job: id(job.method)):
        alike = list(group)
        rows = [_so_far(job.features, job.tokens) if so_far else job.features for job in alike]
        parts.append(alike[0].method.inputs(collate(rows, None, device)))
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


class QueueFull(Exception):
    """Too many rows wait."""


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
        self.texts = Texts(prompts.shared)
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
                    read(job, self.prompts.get(job.name), self.longest)
                if job.ready:
                    return job
                self._grammars.submit(self._follow, job)
            except Exception as error:  # nothing may end the thread that computes
                if not isinstance(error, UserError):
                    name = visible(job.name)
                    _LOG.warning("a row of %s could not be read", name, exc_info=True)
                job.fail(error)

    def _follow(self, job: WaitingRow) -> None:
        try:
            follow(job)
            with self._changed:
                self.waiting.appendleft(job)
                self._changed.notify()
        except BaseException as error:  # the library is no Python
            job.fail(error)

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
                    alike[0].fail(error)
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
            self.texts = Texts(self.prompts.shared, texts.written)
            self._alone(texts.jobs)

    def _alone(self, jobs: Sequence[WaitingRow]) -> None:
        """Compute rows one by one; of a text some tokens, after which it joins others again."""
        for job in jobs:
            texts = Texts(self.prompts.shared)
            try:
                if not job.done.done():
                    self._step([job], texts)
                for _ in range(AHEAD):
                    texts.step(self.budget)
            except Exception as error:
                job.fail(error)
            self.texts.written += texts.written
            if not job.done.done():
                with self._changed:
                    self.waiting.appendleft(job)

    def _step(self, jobs: Sequence[WaitingRow], texts: Texts) -> list[WaitingRow]:
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
                        job.tell()
                        continue
                    answer = Prediction(answer.id, "", figures={"unfinished": 1.0})
                if job.left <= 0:
                    job.give(answer)
        elif jobs[0].steps:
            texts.join(jobs)
        else:
            jobs = by_method(jobs)
            decoding = replace(decoding, max_new_tokens=max(job.left for job in jobs))
            closed = shared.backbone.architecture.closed  # it writes rows of one length
            with shared.engine.precise():
                written = [
                    row
                    for part in ([[job] for job in jobs] if closed else [jobs])
                    for row in generate(shared.backbone, joined(part), decoding)
                ]
            for job, row in zip(jobs, written, strict=True):
                job.tokens = row[: job.left]
                texts.written += len(row)
                job.tell(whole=True)
        return [job for job in jobs if decoding is None and job.left > 0]
