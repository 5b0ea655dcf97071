"""Compares the logits of a run with those of its exported folder, on the run's own dev examples."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ptrun.backbone.base import Positions
from ptrun.errors import UserError
from ptrun.exporting.form import Form
from ptrun.exporting.reader import cannot
from ptrun.method.base import Method
from ptrun.readout.base import Batch, Features, collate
from ptrun.readout.head import Head
from ptrun.types import Example

TOLERANCE = 1e-4
_LARGE = 10.0  # larger logits have larger rounding errors in fp32
_TOGETHER, _MOST = 16, 1000


@dataclass(frozen=True)
class Parity:
    """How far an exported folder is from its run.

    Args:
        difference: the largest absolute difference of two logits.
        largest: the largest absolute logit.
        examples: the number of dev examples.
        logits: the number of logits.
    """

    difference: float
    largest: float
    examples: int
    logits: int

    @property
    def equal(self) -> bool:
        """Whether the difference is at most 1e-4, or 1e-5 of the largest logit if that is more."""
        return self.difference <= TOLERANCE * max(1.0, self.largest / _LARGE)


def batches(method: Method, examples: Sequence[Example], form: Form) -> Iterator[Batch]:
    """Yield the encoded dev examples, at most 1,000, in an order that saves padding.

    Raises:
        UserError: PEFT cannot read one of the rows as the run does.
    """
    features = method.encode(examples[:_MOST])
    features.sort(key=lambda one: max(len(row.ids) for row in one.rows))
    for features_of_batch in _parts(features):
        batch = collate(features_of_batch, None, torch.device(method.backbone.model.device))
        _check(batch, form)
        yield batch


@torch.no_grad()
def parity(method: Method, model: Any, form: Form, examples: Sequence[Example]) -> Parity:
    """Return the difference between a loaded method and the stock model of its folder."""
    if not examples:
        raise UserError("export: this run has no dev examples, on which the logits are compared.")
    difference = largest = 0.0
    count = logits = 0
    for batch in batches(method, examples, form):
        ours, theirs = ours_of(method, batch), theirs_of(model, batch, form)
        difference = max(difference, float((ours - theirs).abs().max()))
        largest = max(largest, float(ours.abs().max()))
        count, logits = count + len(batch.features), logits + ours.numel()
    return Parity(difference, largest, count, logits)


def ours_of(method: Method, batch: Batch) -> Tensor:
    """Return the logits of a run at the positions that it reads, `[K, C]` or `[K, V]`."""
    output = method.backbone.forward(method.inputs(batch))
    if isinstance(method.readout, Head):
        return method.readout.scores(output, batch).float()
    assert output.logits is not None
    return output.logits.float()


def theirs_of(model: Any, batch: Batch, form: Form) -> Tensor:
    """Return the same logits of the stock model."""
    logits = model(**stock_inputs(batch, form)).logits.float()
    if logits.dim() == 2:  # one row of labels a text
        return logits  # type: ignore[no-any-return]
    at = moved(batch.reads, form)
    return logits[at.rows, at.columns]  # type: ignore[no-any-return]


def moved(reads: Positions, form: Form) -> Positions:
    """Return positions in the stock model's output, which has a prompt's vectors too."""
    return Positions(reads.rows, reads.columns + form.shift)


def stock_inputs(batch: Batch, form: Form) -> dict[str, Tensor]:
    """Return what the stock model reads: the text without vectors, and the decoder's start."""
    grids = {"input_ids": batch.ids, "attention_mask": batch.mask.long()}
    if batch.types is not None:
        grids["token_type_ids"] = batch.types
    given = {name: grid[:, form.cut :] for name, grid in grids.items()}
    if batch.decoder is not None and form.reader.words:
        assert batch.decoder_mask is not None
        given["decoder_input_ids"] = batch.decoder
        given["decoder_attention_mask"] = batch.decoder_mask.long()
    return given


def _check(batch: Batch, form: Form) -> None:
    """Refuse rows whose vectors or segments PEFT cannot place.

    Raises:
        UserError: a row has vectors inside its text, or two segments that PEFT drops.
    """
    if form.cut and batch.softs is not None:
        first = torch.arange(form.cut, device=batch.softs.device)
        if not bool((batch.softs == first).all()):
            raise cannot(
                "PEFT puts vectors before the text only, and this pattern has some inside it "
                "(after [CLS], or among words)."
            )
    drops = form.learns_prompt and form.reader.words
    if drops and batch.types is not None and bool(batch.types.any()):
        raise cannot("PEFT drops the second segment of a pattern with ||.")


def _parts(features: Sequence[Features]) -> Iterator[Sequence[Features]]:
    for start in range(0, len(features), _TOGETHER):
        yield features[start : start + _TOGETHER]
