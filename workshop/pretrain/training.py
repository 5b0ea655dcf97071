"""The training loop and the evaluation, which compares with the best constant prediction."""

import math
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch
from torch import nn

from workshop.pretrain import state
from workshop.pretrain.objective import Chance, Objective
from workshop.pretrain.recipe import Recipe
from workshop.pretrain.rows import Batch, Stream

Line = dict[str, float]


@dataclass(frozen=True)
class Pretraining:
    """A model, its objective and its recipe."""

    model: Any
    objective: Objective
    recipe: Recipe

    @property
    def score(self) -> str:
        """The name of the score."""
        return "auc" if self.recipe.objective == "replaced" else "top1"

    def train(self, source: Stream, kept: Path) -> list[Line]:
        """Train in place; return the log, one line every `log_every` steps.

        The state is kept in a file with each line. If that is there, training goes on from it.
        """
        recipe = self.recipe
        optimizer = _optimizer(self.model, recipe)
        chance = Chance(source.dice, source.marks, recipe.vocabulary)
        batches = _batches(source)
        log: list[Line] = []
        if kept.is_file():
            log, dice = state.load(kept, recipe, self.model, optimizer)
            deque(islice(batches, int(log[-1]["step"])), maxlen=0)  # those that it has seen
            source.dice.set_state(dice)
        before = log[-1] if log else {"step": 0, "seconds": 0.0}
        began, loss, score = time.perf_counter() - before["seconds"], 0.0, 0.0
        self.model.train()
        for step, batch in zip(range(int(before["step"]), recipe.steps), batches, strict=False):
            for group in optimizer.param_groups:
                group["lr"] = recipe.rate * group["share"] * share(step, recipe)
            with torch.autocast(recipe.device, torch.bfloat16):
                scored = self.objective(self.model, batch.to(recipe.device), chance)
            optimizer.zero_grad()
            scored.loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            optimizer.step()
            loss, score = loss + scored.loss.item(), score + scored.score.item()
            if (step + 1) % recipe.log_every == 0:
                means = loss / recipe.log_every, score / recipe.log_every
                log.append(self._line(step + 1, *means, time.perf_counter() - began))
                loss, score = 0.0, 0.0
                state.save(kept, recipe, log, self.model, optimizer, source.dice)
        return log

    @torch.no_grad()
    def evaluate(self, source: Stream) -> Line:
        """Return loss and score on held-out rows, and those of the best constant prediction."""
        self.model.eval()
        chance = Chance(source.dice, source.marks, self.recipe.vocabulary)
        tokens = sum(sum(map(len, row)) for row in source.rows)
        count = max(1, tokens // self.recipe.batch)
        scored = [
            self.objective(self.model, batch.to(self.recipe.device), chance)
            for batch in islice(source.batches(), count)
        ]
        loss = sum(s.reported.item() for s in scored) / count
        score = sum(s.score.item() for s in scored) / count
        shares = torch.cat([s.targets for s in scored]).bincount().double()
        shares = shares[shares > 0] / shares.sum()
        constant = -(shares * shares.log()).sum().item()
        figures = {"loss": loss, "constant_loss": constant, self.score: score}
        if self.score == "top1":
            figures["constant_top1"] = shares.max().item()
        if self.recipe.objective in ("causal", "denoising", "infilling"):
            figures |= {"perplexity": math.exp(loss), "constant_perplexity": math.exp(constant)}
        return {name: round(value, 4) for name, value in figures.items()}

    def _line(self, step: int, loss: float, score: float, seconds: float) -> Line:
        """Print and return one line of the training log."""
        line = {"step": step, "loss": round(loss, 4), self.score: round(score, 4)}
        line["seconds"] = round(seconds, 1)
        print(line, flush=True)
        return line


def share(step: int, recipe: Recipe) -> float:
    """Return the share of the peak rate: linear warm-up, then linear decay to zero."""
    rise = max(1.0, recipe.warmup * recipe.steps)
    return min((step + 1) / rise, (recipe.steps - step) / max(1.0, recipe.steps - rise))


def _batches(source: Stream) -> Iterator[Batch]:
    """Yield batches, every second one of answers: they teach meaning, but are rare in text."""
    plain = source.batches()
    if not source.has_answers():
        return plain
    return chain.from_iterable(zip(source.batches(answers=True), plain, strict=True))


def _optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """Return AdamW; T5's query matrices include the attention scale, so their rate is smaller."""
    named = list(model.named_parameters())
    queries = [p for n, p in named if n.endswith("Attention.q.weight")]
    decayed = [p for n, p in named if p.ndim > 1 and not n.endswith("Attention.q.weight")]
    plain = [p for _, p in named if p.ndim == 1]
    size = getattr(model.config, "d_kv", 1)
    groups = [
        {"params": decayed, "share": 1.0},
        {"params": plain, "weight_decay": 0.0, "share": 1.0},
        {"params": queries, "share": size**-0.5},
    ]
    groups = [group for group in groups if group["params"]]
    return torch.optim.AdamW(
        groups, lr=recipe.rate, betas=(0.9, 0.98), weight_decay=recipe.decay, fused=True
    )
