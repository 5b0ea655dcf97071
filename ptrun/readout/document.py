"""A document in view of a frozen backbone: what it predicts there, and what it asks about it.

Keys and values of the document are computed once, and enter the passes over rows as a prefix.
"""

import hashlib
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from ptrun.backbone.base import BackboneInput, Prefix, Site
from ptrun.backbone.injection import Reader
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.task.own_pattern import text_of

_MOST_BYTES = 10_000_000
DIGEST = "sha256:"
"""Before the digest of a document whose text is not known."""
Span = tuple[int, int]
"""The first token of a part of a document, and the one after its last."""


def read_document(value: str, where: str) -> str:
    """Return a text, or that of `@FILE`; refuse an empty one, by `where` it was typed."""
    text = value.strip()
    if text.startswith("@"):
        file = Path(text.removeprefix("@")).expanduser()
        text = text_of(file, _MOST_BYTES, "too large for a document").strip()
    if not text:
        raise UserError(f"{where}: no text. Give a text, or @FILE of one that has some.")
    return text


def digest_of(text: str) -> str:
    """Return 16 hexadecimal digits over a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def recorded(value: str) -> str:
    """Return the digest of a document, as a run records it, in place of its text or file."""
    if value.startswith(DIGEST):
        return value
    return DIGEST + digest_of(read_document(value, "readout.document"))


class Document:
    """A document in view of a backbone.

    >>> from ptrun.testing import read
    >>> from ptrun.readout.document import Document
    >>> method, batch, output = read("method=lora", "task=pocket_writing", "backbone=pocket_gpt2")
    >>> Document(method.backbone, "A red boat is on the river.").parts(4)
    [(0, 3), (3, 6), (6, 9)]
    """

    def __init__(self, backbone: PretrainedBackbone, text: str):
        self.backbone, self.text = backbone, text
        self._read: tuple[Span, Tensor] | None = None  # the last part

    @cached_property
    def ids(self) -> list[int]:
        """The tokens of the document, with those that a tokenizer adds."""
        return list(self.backbone.tokenizer()(self.text).input_ids)

    def parts(self, size: int) -> list[Span]:
        """Return parts of about equal size, of at most `size` tokens."""
        count = -(-len(self.ids) // size)
        ends = [round(len(self.ids) * place / count) for place in range(count + 1)]
        return list(pairwise(ends))

    def before(self, span: Span, inputs: BackboneInput) -> BackboneInput:
        """Return rows with a part of the document in view."""
        if self._read is None or self._read[0] != span:
            layers = range(self.backbone.shape.layers)
            sites: list[tuple[Reader, Site]] = [("text", ("attention", i)) for i in layers]
            self._read = span, self.backbone.read(sites, self.ids[slice(*span)])
        values, rows = self._read[1], len(inputs.mask)
        values = values.to(self.backbone.model.get_input_embeddings().weight.dtype)
        every = values.permute(1, 2, 0, 3)[:, None].expand(-1, rows, -1, -1, -1).unbind()
        pairs = zip(every[::2], every[1::2], strict=True)  # each [B, heads, P, d]
        shift = torch.full((rows,), span[1] - span[0], device=inputs.mask.device)
        return replace(inputs, prefixes=tuple(Prefix(*pair) for pair in pairs), shift=shift)


# Self-study: the backbone asks about parts of the document (Eyuboglu et al. 2025, §4).

SEEDS = {
    "structure": "Write one question about how the text above is organized.",
    "summary": "Write one question about the main points of a part of the text above.",
    "detail": "Write one question about a name, a date or a number in the text above.",
    "use": "Write one question of a reader who wants to use what the text above says.",
    "idea": "Write one unusual question that makes a reader think about the text above.",
}


def turns(view: Document, count: int, size: int) -> list[tuple[str, Span]]:
    """Return a kind of `SEEDS` and a part of at most `size` tokens for each of `count` questions.

    Every part has each kind before one comes again.
    """
    parts, kinds = view.parts(size), list(SEEDS)
    numbers = [divmod(i, len(parts)) for i in range(count)]
    return [(kinds[n % len(kinds)], parts[i]) for n, i in numbers]
