"""The training loop of LM adaptation: forward passes, optimizer steps, a log, saved states."""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ptrun.backbone.base import BackboneInput, DecoderInput
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import RunFailed
from ptrun.pretrain.adaptation.continuations import Continuations, Place
from ptrun.pretrain.adaptation.recipe import Adaptation
from ptrun.readout.base import Features, collate
from ptrun.training.progress import meter

_LOG = logging.getLogger(__name__)
Line = dict[str, float]


class Trainer:
    """Training of a whole backbone, without dropout like the pre-training of T5 v1.1.

    Args:
        backbone: a loaded backbone in fp32.
        recipe: the settings.
        source: the texts.
        device: `cpu` or `cuda`.
    """

    def __init__(
        self, backbone: PretrainedBackbone, recipe: Adaptation, source: Continuations, device: str
    ):
        self.backbone, self.recipe, self.source, self.device = backbone, recipe, source, device
        backbone.model.to(device)
        self.learned: dict[str, nn.Parameter] = backbone.body(head=True)
        for parameter in self.learned.values():
            parameter.requires_grad_(True)
        self.optimizer = _optimizer(recipe, self.learned)
        self.step, self.place, self.seconds = 0, Place(), 0.0
        self.log: list[Line] = []
        self._losses: list[float] = []

    def train(self, save: Callable[[], None]) -> None:
        """Train to the last step; call `save` every `save_every` seconds.

        Raises:
            RunFailed: the loss is not finite.
        """
        texts = self.source.after(self.place)
        began, saved = time.monotonic() - self.seconds, time.monotonic()
        with meter(self.recipe.steps, self.step) as shown:
            while self.step < self.recipe.steps:
                drawn = list(islice(texts, self.recipe.batch))
                loss, tokens = self._update([text for _, text in drawn])
                self.step, self.place = self.step + 1, drawn[-1][0]
                self.seconds = time.monotonic() - began
                self._note(loss)
                shown.show(self.step, loss, "", None, tokens)
                if time.monotonic() - saved >= self.recipe.save_every:
                    save()
                    saved = time.monotonic()

    @torch.no_grad()
    def evaluate(self, texts: Sequence[Features]) -> dict[str, float]:
        """Return the mean loss per token, and the perplexity."""
        total = sum(float(self._losses_of(part).sum()) for part in self._passes(texts))
        loss = total / sum(len(text.targets) for text in texts)
        return {"loss": round(loss, 4), "perplexity": round(math.exp(loss), 4)}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the state that the next step depends on: tensors, and plain data."""
        tensors = {f"learned.{name}": p.detach() for name, p in self.learned.items()}
        names = list(self.learned)
        for number, moments in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{key}.{names[number]}": value for key, value in moments.items()}
        plain = {"step": self.step, "place": asdict(self.place), "seconds": self.seconds}
        return tensors, {**plain, "log": self.log, "losses": self._losses}

    @torch.no_grad()
    def resume(self, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> None:
        """Restore a state."""
        self.step, self.seconds = plain["step"], plain["seconds"]
        self.place, self.log = Place(**plain["place"]), list(plain["log"])
        self._losses = list(plain["losses"])
        for name, parameter in self.learned.items():
            parameter.copy_(tensors[f"learned.{name}"])
        moments: dict[int, dict[str, Tensor]] = {}
        numbers = {name: number for number, name in enumerate(self.learned)}
        for full in (name for name in tensors if name.startswith("optimizer.")):
            _, key, name = full.split(".", 2)
            moments.setdefault(numbers[name], {})[key] = tensors[full]
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": moments, "param_groups": groups})

    def _update(self, texts: Sequence[Features]) -> tuple[float, int]:
        """Take one step; return the mean loss per token, and the number of tokens."""
        total = sum(len(text.targets) for text in texts)
        losses = []
        for part in self._passes(texts):
            share = self._losses_of(part).sum() / total
            share.backward()  # type: ignore[no-untyped-call]
            losses.append(share.detach())
        loss = float(torch.stack(losses).sum())  # the host waits once
        if not math.isfinite(loss):
            raise RunFailed(f"loss is {loss} at step {self.step + 1}; try a smaller rate=NUMBER.")
        nn.utils.clip_grad_norm_(self.learned.values(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss, total + sum(text.tokens for text in texts)

    def _losses_of(self, texts: Sequence[Features]) -> Tensor:
        """Return the loss of each target token, `[K]`, in fp32."""
        batch = collate(texts, None, torch.device(self.device))
        assert batch.decoder_mask is not None
        inputs = BackboneInput(
            mask=batch.mask,
            lengths=batch.lengths,
            ids=batch.ids,
            decoder=DecoderInput(mask=batch.decoder_mask, ids=batch.decoder),
            logits_at=batch.reads,
        )
        with torch.autocast(self.device, torch.bfloat16, enabled=self.recipe.precision == "bf16"):
            logits = self.backbone.forward(inputs).logits
        assert logits is not None
        return functional.cross_entropy(logits.float(), batch.targets, reduction="none")

    def _passes(self, texts: Sequence[Features]) -> list[list[Features]]:
        """Group texts of like length into passes of at most `token_budget` padded tokens."""
        parts: list[list[Features]] = []
        for text in sorted(texts, key=lambda text: (text.tokens, len(text.targets))):
            if not parts or _padded([*parts[-1], text]) > self.recipe.token_budget:
                parts.append([])
            parts[-1].append(text)
        return parts

    def _note(self, loss: float) -> None:
        """Log the mean loss since the last line every `log_every` steps."""
        self._losses.append(loss)
        if self.step % self.recipe.log_every == 0:
            mean = sum(self._losses) / len(self._losses)
            self.log.append(
                {"step": self.step, "loss": round(mean, 4), "seconds": round(self.seconds, 1)}
            )
            self._losses = []
            _LOG.info("step %d of %d: loss %.4f", self.step, self.recipe.steps, mean)


def _padded(texts: Sequence[Features]) -> int:
    """Return the number of padded tokens of a pass, in encoder and decoder."""
    longest = max(text.tokens for text in texts) + max(len(text.targets) for text in texts)
    return len(texts) * longest


def _optimizer(recipe: Adaptation, learned: Mapping[str, nn.Parameter]) -> torch.optim.Optimizer:
    kind = torch.optim.AdamW if recipe.optimizer == "adamw" else torch.optim.Adafactor
    return kind(learned.values(), lr=recipe.rate, weight_decay=0.0)
