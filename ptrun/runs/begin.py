"""Initialize the prompts of a run as `start=` says."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import cast

import torch
from torch import Tensor

from ptrun.method.base import Method
from ptrun.prompt.soft import InputVectors
from ptrun.readout.base import Features
from ptrun.runs.saved_prompt import follow
from ptrun.start import peft
from ptrun.start.heads import begin_head
from ptrun.start.spec import OTHERS, WORDS, Start
from ptrun.start.words import Source, word_ids

_LOG = logging.getLogger(__name__)

Rows = Callable[[Method, str], Iterable[Features]]
"""Returns the encoded train and dev examples of a method's part."""


def begin(
    start: Start, methods: Mapping[str, Method], bound: Mapping[str, str], seed: int, rows: Rows
) -> None:
    """Initialize the prompts of placed methods, by part, and heads copied from the backbone.

    Raises:
        UserError: the prompt of another run does not fit, or there are no words.
    """
    heads = [begin_head(method) for method in methods.values()]
    if start.tuned is not None:
        new = "the rest is new" if any(heads) else "prompt and head are new"
        _LOG.info("start=run:%s: its backbone is used; %s", start.value, new)
    elif start.kind == "peft":
        assert start.folder is not None
        adapter = peft.read(start.folder)
        for method in methods.values():
            peft.begin(adapter, method)
    elif start.kind in OTHERS:
        assert start.folder is not None
        follow(start.folder, methods, bound)
    elif start.kind != "random":
        for part, method in methods.items():
            prompt = cast(InputVectors, method.prompt)
            generator = torch.Generator().manual_seed(seed)
            source = Source(start, method, partial(rows, method, part), generator)
            prompt.begin(vectors(source, *prompt.table.shape).to(prompt.table))


def vectors(source: Source, length: int, width: int) -> Tensor:
    """Return the initial vectors `[length, width]` of a start."""
    start, draw = source.start, source.draw
    if start.kind in WORDS:
        return _embedded(source.method, word_ids(source, length))
    if start.kind == "uniform":
        return (2 * torch.rand(length, width, generator=draw) - 1) * start.size
    rows = 1 if start.kind == "identical" else length
    return (torch.randn(rows, width, generator=draw) * start.size).expand(length, width)


@torch.no_grad()
def _embedded(method: Method, ids: Sequence[int]) -> Tensor:
    table = method.backbone.model.get_input_embeddings().weight
    return method.backbone.embed(torch.tensor(ids, device=table.device))
