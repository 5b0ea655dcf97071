"""Context-aware prompt tuning: the prompt starts as demonstrations, and stays near them.

Blau et al. 2024, §3: the vectors are the word embeddings of training examples with their answers,
plus δ. Each pass first projects the rows of δ onto balls, of radius `epsilon` for tokens of a text,
`format_epsilon` for other words of the pattern, and 0 for an answer. In training the loss of the
answers in the prompt joins, of the last demonstration times `decay`, of the one before it squared.
As in PEFT radii are for 2,048 numbers and grow with the root of the width. PEFT averages the losses
of a row's answers; here they are summed. A start without a text is prompt tuning of one vector.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from ptrun.backbone.base import BackboneInput, BackboneOutput, Positions, on_device
from ptrun.errors import UserError
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.prompt import SoftPrompt
from ptrun.readout.base import Batch, word_logits
from ptrun.readout.cloze import Cloze
from ptrun.types import Example


class _NearVectors(SoftPrompt):
    """Vectors `base` `[P, E]` plus a table, whose rows are at most as long as `radius` `[P, 1]`."""

    base: Tensor | float = 0.0
    radius: Tensor | float = math.inf

    def vectors(self) -> Tensor:
        """Project the table, and return the vectors, `[P, E]`."""
        norms = self.table.detach().norm(dim=1, keepdim=True).clamp(min=1e-20)
        self.table.data.mul_((self.radius / norms).clamp(max=1))
        return self.base + self.table


class CPT(PromptTuning):
    """Demonstrations as vectors `[P, E]` that training moves within balls, and a read-out.

    Args:
        epsilon, format_epsilon: radii for tokens of texts and of patterns.
        decay: the weight of a demonstration's answer relative to that of the next one.

    >>> from ptrun.testing import read
    >>> method, _, _ = read("method=cpt", "readout=verbalizer", "backbone=pocket_gpt2")
    >>> method.begin([7, 8, 9], ["field", "literal", "answer"])
    >>> method.prompt.radius.flatten()
    tensor([0.0250, 0.0250, 0.0000])
    """

    needs: ClassVar[Mapping[str, str]] = {"left_to_right": "a left-to-right model"}
    readouts = ("verbalizer", "writing")
    may_differ = ("epsilon", "format_epsilon", "decay")
    readout: Cloze
    replays = False  # type: ignore[assignment]  # training also reads positions of the prompt
    prompt: _NearVectors

    def __init__(
        self, *run: Any, epsilon: float = 0.1, format_epsilon: float = 0.1, decay: float = 1.0
    ):
        super().__init__(*run, length=1)
        if min(epsilon, format_epsilon, decay) < 0:
            values = f"epsilon is {epsilon}, format_epsilon {format_epsilon} and decay {decay}"
            raise UserError(f"method.{values}; use 0 or more.")
        scale = math.sqrt(self.backbone.shape.embedding_size / 2048)
        self.radii = {"field": epsilon * scale, "literal": format_epsilon * scale}
        self.decay = decay
        self.answers = self.targets = self.weights = torch.zeros(0, dtype=torch.long)
        self._resize(1)

    def _resize(self, length: int) -> None:
        device, width = self.prompt.table.device, self.backbone.shape.embedding_size
        self.length, self.prompt = length, _NearVectors(length, width).to(device)

    def kinds(self, example: Example) -> list[str]:
        """Return the kind of each token of a demonstration: `field`, `literal` or `answer`."""
        pieces, block = self.readout.pieces(example), self.readout.encoder.block
        sizes = [len(block(pieces[:count])) for count in range(len(pieces))]  # the mask is last
        spans = zip(pieces, sizes, sizes[1:], strict=False)
        kinds = [piece.kind for piece, start, end in spans for _ in range(end - start)]
        answer = len(self.readout.demonstration(example)) - sizes[-1]
        return [*kinds, *["answer"] * answer, *["literal"] * sizes[0]]

    def begin(self, ids: Sequence[int], kinds: Sequence[str]) -> None:
        """Start from tokens, of which `kinds` says: `field`, `literal`, `answer` or another."""
        positions, device = self.backbone.shape.positions, self.prompt.table.device
        if len(ids) > positions - 8:
            count = f"{len(ids)} tokens of demonstrations"
            raise UserError(f"start: {count} fill the {positions} positions. Name fewer of them.")
        self._resize(len(ids))
        tokens, radii = on_device(ids, device), [self.radii.get(kind, 0.0) for kind in kinds]
        self.prompt.base = self.backbone.embed(tokens).detach().float()
        self.prompt.radius = on_device(radii, device, torch.float)[:, None]
        self.prompt.begin(torch.zeros_like(self.prompt.base))
        places = [i for i, kind in enumerate(kinds) if kind == "answer" and i]
        ends = [i for i in places if i + 1 not in places]
        weights = [self.decay ** sum(end >= i for end in ends) for i in places]
        self.answers, self.targets = on_device(places, device), tokens[places]
        self.weights = on_device(weights, device, torch.float)

    def prompted(self, batch: Batch, vectors: Tensor) -> BackboneInput:
        """Return text and vectors; in training the prompt is read too, in the first row."""
        inputs = super().prompted(batch, vectors)
        if batch.keys is None or not len(self.answers) or (at := inputs.logits_at) is None:
            return inputs
        rows = torch.cat([at.rows, torch.zeros_like(self.answers)])
        return replace(inputs, logits_at=Positions(rows, torch.cat([at.columns, self.answers - 1])))

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return the loss, in training with that of the answers in the prompt."""
        if batch.keys is None or not len(self.answers):
            return super().loss(output, batch)
        logits, count = word_logits(output), len(output.tensors[0]) - len(self.answers)
        losses = functional.cross_entropy(logits[count:], self.targets, reduction="none")
        loss = super().loss(replace(output, logits=logits[:count]), batch)
        return loss + len(batch.features) * (self.weights * losses).sum()

    def load_exported(self, tensors: dict[str, Tensor]) -> None:
        """Load finished vectors."""
        self._resize(len(tensors["prompt.table"]))
        super().load_exported(tensors)
