"""Texts that are written together, a pass for each token; rows join and leave between two."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from ptrun.backbone.base import BackboneInput
from ptrun.backbone.choosing import choose, token_scores
from ptrun.backbone.joining import join
from ptrun.backbone.stepping import Held, begin, regrouped, step
from ptrun.predicting.together import Together
from ptrun.readout.base import Features, collate
from ptrun.serve.rows import WaitingRow


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
