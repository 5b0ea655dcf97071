"""Forgetting: the rise of the backbone's loss on texts that have nothing to do with the task.

As in PEFT's method comparison: the mean loss of a token with the method, less that without.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from ptrun.backbone.base import BackboneOutput
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.files import read_text
from ptrun.method.base import Method
from ptrun.readout.base import Batch, Features, TokenRow, WordReader, word_logits
from ptrun.training.loop import Loop
from ptrun.types import Example, Prediction

_LONGEST = 768  # tokens of a text, as in PEFT's comparison


def texts_of(file: str, backbone: PretrainedBackbone) -> tuple[str, ...]:
    """Return the lines of a text file that are not blank.

    Raises:
        UserError: the file cannot be read or has no text, or the backbone cannot read its loss.
    """
    family = backbone.architecture
    if not family.left_to_right or family.writes_apart:
        raise UserError(
            f"forgetting={file}: backbone={backbone.name} ({backbone.family}) does not write left "
            "to right, so the loss of a text is not defined. Leave it out."
        )
    try:
        lines = read_text(Path(file).expanduser()).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"forgetting={file}: {error}. Give a text file, one text a line.") from None
    if not (texts := tuple(line.strip() for line in lines if line.strip())):
        raise UserError(f"forgetting={file}: it has no text. Give a text file, one text a line.")
    return texts


def digest_of(texts: Sequence[str]) -> str:
    """Return a fingerprint of texts."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


class _Words(WordReader):
    """Reads the loss of each token of a text but the first."""

    writes = settles = False

    def __init__(self, method: Method, softs: int = 0, before: Sequence[list[int]] = ()):
        self.backbone, self.task, self.softs = method.backbone, method.task, softs
        self.before = [*chain.from_iterable(before)]

    def encode(self, examples: Sequence[Example], room: int) -> list[Features]:
        """Return a row for each text, behind slots of learned vectors and texts of the method."""
        tokenizer, softs, rows = self.backbone.tokenizer(), [*range(self.softs)], []
        first = [0] * self.softs + self.before
        for example in examples:
            ids = tokenizer(example.fields["text"]).input_ids[: min(_LONGEST, room - len(first))]
            reads = [len(first) + place for place in range(len(ids) - 1)]
            row = TokenRow(first + ids, reads=reads, softs=softs)
            rows += [Features(example.id, [row], ids[1:])] if reads else []
        return rows

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return cross-entropy summed over tokens, `[]`."""
        return functional.cross_entropy(word_logits(output), batch.targets, reduction="sum")

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return nothing but the ids."""
        return [Prediction(f.id, None) for f in batch.features]


class _Bare(Method):
    """The backbone without a method, on texts."""

    def __init__(self, method: Method):
        nn.Module.__init__(self)
        self.backbone, self.task = method.backbone, method.task
        self.readout = _Words(method)


@contextmanager
def _reading_words(method: Method) -> Iterator[None]:
    readout: Any = method.readout
    softs = readout.pvp.pattern.softs if method.soft else 0
    words = _Words(method, softs, readout.texts_before)
    del method.readout  # it may be a module, which a plain read-out cannot replace
    method.readout = words
    try:
        yield
    finally:
        del method.readout
        method.readout = readout


def loss_without(method: Method, texts: Sequence[str], engine: Loop) -> float:
    """Return the mean loss a token of texts of the backbone, which nothing has changed so far."""
    return _loss(_Bare(method), texts, engine)


def loss_with(method: Method, texts: Sequence[str], engine: Loop) -> float:
    """Return the mean loss a token of texts, read after the prompt of a method."""
    with _reading_words(method):
        return _loss(method, texts, engine)


def _loss(method: Method, texts: Sequence[str], engine: Loop) -> float:
    examples = [Example(f"text-{place}", {"text": text}, None) for place, text in enumerate(texts)]
    return engine.evaluate([method], [method.encode(examples)], losses=True)[1][0]
