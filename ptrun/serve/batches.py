"""Waiting requests as batches: rows of all runs share passes, and texts a pass for each token.

One thread reads runs and rows and computes. New texts join those that are written before the next
token: a long answer holds up nobody, and a row whose client left is dropped at the next token.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from ptrun.backbone.choosing import Decoding
from ptrun.backbone.generation import generate
from ptrun.errors import UserError, visible
from ptrun.serve.prompts import Prompts
from ptrun.serve.reading import follow, read
from ptrun.serve.rows import AHEAD, WaitingRow
from ptrun.serve.texts import Texts, by_method, joined
from ptrun.types import Prediction

_LOG = logging.getLogger(__name__)
_LATER = "too many rows wait; try again later."


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
