"""A read-out turns examples into rows of tokens, and the backbone's output into predictions."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from torch import Tensor

from ptrun.backbone.base import (
    BackboneInput,
    BackboneOutput,
    Positions,
    as_bytes,
    moved,
    tensors_of,
)
from ptrun.backbone.packing import Room, rounded
from ptrun.task.columns import targets_of
from ptrun.task.dataset import Task
from ptrun.types import Example, Prediction

if TYPE_CHECKING:
    from ptrun.pattern.pattern import Pattern
    from ptrun.pattern.verbalizer import Verbalizer

ClassWeights = Literal["none", "balanced"]
Thresholds = Literal["one", "each", "half"]
"""How the thresholds of several labels a row are chosen: `ptrun.readout.multilabel`."""
_NEXT_ROW = 2862933555777941757  # keys of neighbouring examples are consecutive: rows must not meet


@dataclass(frozen=True)
class TokenRow:
    """One sequence of tokens.

    Args:
        ids: token ids, special tokens included.
        types: segment ids, or None.
        reads: positions that are read, in the decoder if there is one.
        softs: positions of the pattern's learned vectors; `ids` holds a placeholder there.
        decoder: input ids of the decoder, or None if it is not used.

    >>> from ptrun.readout.base import TokenRow
    >>> TokenRow([2, 7, 4, 3], reads=[2]).filled(0, 9)  # the token 9 at the mask, 4
    TokenRow(ids=[2, 7, 9, 3], types=None, reads=[], softs=[], decoder=None)
    """

    ids: list[int]
    types: list[int] | None = None
    reads: list[int] = field(default_factory=list)
    softs: list[int] = field(default_factory=list)
    decoder: list[int] | None = None

    def filled(self, read: int, token: int) -> "TokenRow":
        """Return the row with a token at one of its reads, which is then no longer read."""
        at = self.reads[read]
        ids = [token if place == at else id_ for place, id_ in enumerate(self.ids)]
        return replace(self, ids=ids, reads=[place for place in self.reads if place != at])


@dataclass(frozen=True)
class Features:
    """One example: its rows and targets. Plain data, stored as JSON.

    Args:
        id: the example's id.
        rows: one or more: windows of a long text, options of a question.
        targets: one for each loss term: a label's index, a token id, a number.
        facts: what else decoding needs.

    >>> from ptrun.readout.base import Features, TokenRow
    >>> Features("id", [TokenRow([2, 7, 3], reads=[0])], targets=[1]).tokens
    3
    """

    id: str
    rows: list[TokenRow]
    targets: list[Any]
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """The number of tokens in the rows, without decoders."""
        return sum(len(row.ids) for row in self.rows)


@dataclass(frozen=True)
class Batch:
    """The rows of several examples padded to one length, on a device.

    Letters as in `ptrun.backbone.base`. `reads` are positions in the decoder if there is one.
    `softs [B, m]` are positions of learned vectors. `keys [B]` are dropout keys, or None. `filling`
    are the tokens of rows of padding behind those of the examples, in a batch of fixed size.

    >>> import torch
    >>> from ptrun.readout.base import Features, TokenRow, collate
    >>> rows = [TokenRow([2, 7, 3], reads=[0]), TokenRow([2, 3], reads=[0])]
    >>> features = [Features(str(i), [row], [0]) for i, row in enumerate(rows)]
    >>> collate(features, None, torch.device("cpu")).mask
    tensor([[ True,  True,  True],
            [ True,  True, False]])
    """

    features: Sequence[Features]
    ids: Tensor
    mask: Tensor
    types: Tensor | None
    reads: Positions
    targets: Tensor
    keys: Tensor | None
    softs: Tensor | None = None
    decoder: Tensor | None = None
    decoder_mask: Tensor | None = None
    filling: Sequence[int] = ()

    def __len__(self) -> int:
        """Return the number of rows, B."""
        return len(self.ids)

    @property
    def rows(self) -> list[TokenRow]:
        """The rows of all examples, in order."""
        return [row for f in self.features for row in f.rows]

    @property
    def lengths(self) -> list[int]:
        """The number of tokens of each row."""
        return [*(len(row.ids) for row in self.rows), *self.filling]

    def by_row(self, values: Tensor) -> list[Tensor]:
        """Split `[K, ...]`, one entry for each read, by row."""
        return list(torch.split(values, [len(row.reads) for row in self.rows]))

    def by_example(self, values: Tensor) -> list[Tensor]:
        """Split `[K, ...]` by example."""
        sizes = [sum(len(row.reads) for row in f.rows) for f in self.features]
        return list(torch.split(values, sizes))

    def rows_by_example(self, values: Tensor) -> list[Tensor]:
        """Split `[B, ...]`, one entry for each row, by example."""
        return list(torch.split(values, [len(f.rows) for f in self.features]))

    def pairs(self, values: Tensor) -> list[tuple[Features, Tensor]]:
        """Return each example with its part of `[K, ...]`."""
        return list(zip(self.features, self.by_example(values), strict=True))


def collate(features: Sequence[Features], keys: Tensor | None, device: torch.device) -> Batch:
    """Pad rows on the right to the longest and move them to a device.

    `keys` are dropout keys, one for each example; its further rows get other keys. None means
    evaluation.
    """
    return together([padded(features, keys)], device)[0][0]


def padded(features: Sequence[Features], keys: Tensor | None, room: Room | None = None) -> Batch:
    """Return the rows on the host, padded to the longest, or to the sizes of `room`."""
    rows = [row for f in features for row in f.rows]
    width = room.width if room else max(len(row.ids) for row in rows)
    filling = room.filling if room else ()
    fill = [[0] * count for count in filling]
    if keys is not None:
        counts = torch.tensor([len(f.rows) for f in features])
        place = torch.cat([torch.arange(len(f.rows)) for f in features])
        keys = keys.repeat_interleave(counts) + place * _NEXT_ROW
        keys = torch.cat([keys, torch.arange(len(fill))])
    ids, mask = _padded([*(row.ids for row in rows), *fill], width)
    types = [row.types for row in rows if row.types is not None]
    softs = [row.softs for row in rows if row.softs]
    decoders = [row.decoder for row in rows if row.decoder is not None]
    decoder, decoder_mask = _padded(decoders, max(map(len, decoders))) if decoders else (None, None)
    targets = [target for f in features for target in f.targets]
    number = torch.float if any(isinstance(t, float) for t in targets) else torch.long
    reads = [(i, column) for i, row in enumerate(rows) for column in row.reads]
    if room:  # more reads, of no cell twice, whose outputs nobody takes
        cells = ((i, column) for i, row in enumerate(rows) for column in range(len(row.ids)))
        reads += islice(cells, rounded(len(reads)) - len(reads))
    return Batch(
        features=features,
        ids=ids,
        mask=mask,
        types=_padded([*types, *fill], width)[0] if types else None,
        reads=Positions(
            torch.tensor([row for row, _ in reads], dtype=torch.long),
            torch.tensor([column for _, column in reads], dtype=torch.long),
        ),
        targets=torch.tensor(targets, dtype=number),
        keys=keys,
        softs=torch.tensor([*softs, *([*range(len(softs[0]))] for _ in fill)]) if softs else None,
        decoder=decoder,
        decoder_mask=decoder_mask,
        filling=filling,
    )


def _padded(rows: Sequence[list[int]], width: int) -> tuple[Tensor, Tensor]:
    grid = [row + [0] * (width - len(row)) for row in rows]
    mask = [[True] * len(row) + [False] * (width - len(row)) for row in rows]
    return torch.tensor(grid), torch.tensor(mask)


_GRIDS = ("ids", "mask", "types", "keys", "softs", "decoder", "decoder_mask")


def fixed_tensors(batch: Batch) -> list[Tensor]:
    """Return the tensors of a batch but its targets: those that the backbone's input is made of."""
    grids = [getattr(batch, name) for name in _GRIDS]
    return [t for t in (*grids, batch.reads.rows, batch.reads.columns) if t is not None]


def with_tensors(batch: Batch, fixed: Iterator[Tensor]) -> Batch:
    """Return a batch with other tensors, in the order of `fixed_tensors`."""
    names = [name for name in _GRIDS if getattr(batch, name) is not None]
    grids: dict[str, Any] = {name: next(fixed) for name in names}
    return replace(batch, **grids, reads=Positions(next(fixed), next(fixed)))


def together(batches: Sequence[Batch], device: torch.device) -> tuple[list[Batch], Tensor | None]:
    """Move batches to a device: to a GPU in one copy from pinned memory.

    Return the bytes of `fixed_tensors` there, too; the targets come behind them.
    """
    fixed = [t for batch in batches for t in fixed_tensors(batch)]
    tensors, content = [*fixed, *(batch.targets for batch in batches)], None
    if torch.device(device).type == "cuda":
        parts = as_bytes(tensors)
        every = moved(torch.cat(parts), device)
        content, tensors = every[: sum(map(len, parts[: len(fixed)]))], tensors_of(every, tensors)
    else:
        tensors = [tensor.to(device) for tensor in tensors]
    pairs, rest = zip(batches, tensors[len(fixed) :], strict=True), iter(tensors)
    return [
        replace(with_tensors(batch, rest), targets=targets) for batch, targets in pairs
    ], content


def unfilled(batch: Batch) -> Batch:
    """Return the rows of a batch without what fills its `Room`."""
    rows = batch.rows
    count, width = len(rows), max(len(row.ids) for row in rows)
    reads = sum(len(row.reads) for row in rows)
    parts: dict[str, Any] = {}
    for name in ("ids", "mask", "types", "keys", "softs"):
        if (grid := getattr(batch, name)) is not None:
            cells = (slice(count),) if name in ("keys", "softs") else (slice(count), slice(width))
            parts[name] = grid[cells]
    at = Positions(batch.reads.rows[:reads], batch.reads.columns[:reads])
    return replace(batch, **parts, reads=at, filling=())


def word_logits(output: BackboneOutput) -> Tensor:
    """Return the language-model head's logits `[K, V]` in fp32."""
    assert output.logits is not None
    return output.logits.float()


class Readout(ABC):
    """How predictions are read from the backbone's output; a method has one.

    `decode` may return `Features` instead of a prediction: they are run through the backbone and
    decoded again.
    """

    task: Task
    class_weights: ClassWeights = "none"
    weights: list[float] | None = None
    """By which the loss of an example with each label is multiplied."""
    reads_decoder: bool = True
    """Whether an encoder-decoder is read in its decoder."""
    teaches: bool = False
    """Whether `teaching` changes the examples, so that train is read in another way than dev."""
    everywhere: bool = False
    """Whether every token of a row is read."""
    writes: bool = False
    """Whether the backbone writes the answer, after the `prompt` of an example, as `decoding` says;
    `answer` makes a prediction of the tokens."""
    settles: bool = False
    """Whether `settle` chooses something on dev that a decision needs: thresholds."""
    longest: int = 1
    """The most tokens of a written answer."""
    windows: bool = False
    """Whether a long text is read in several rows, so that it is not cut."""
    pooler: str | None = None
    """What the vector of a text is; None if none is read."""
    pattern: "Pattern | None" = None
    """The pattern of a text, if there is one."""
    studies: bool = False
    """Whether `study` writes the training examples."""
    texts_before: Sequence[list[int]] = ()
    """The tokens of the texts before each row."""
    store: Path | None = None
    """The folder for what is computed once and read by later runs; None: nothing is written."""

    @property
    def reads_pooler(self) -> bool:
        """Whether the backbone's pooler is read."""
        return False

    def teaching(self, examples: Sequence[Example], room: int) -> list[Example]:
        """Return the training examples, in the form that is learned from."""
        return list(examples)

    @property
    def labels(self) -> Sequence[Any]:
        """The labels, in the order of `weights`."""
        return self.task.labels

    def weigh(self, examples: Sequence[Example]) -> None:
        """Set the weight of each label, if `class_weights` says so: scikit-learn's N / (C' n).

        n of N training examples have the label, and C' labels have any: the mean weight of an
        example is 1. A label without an example has 1.
        """
        if self.class_weights == "balanced":
            counts = Counter(targets_of(examples))
            size, kinds = len(examples), len(counts)
            self.weights = [size / (kinds * counts[k]) if counts[k] else 1.0 for k in self.labels]

    def settle(
        self, predictions: Sequence[Prediction], examples: Sequence[Example]
    ) -> Sequence[Prediction]:
        """Choose on dev what a decision needs besides the outputs; return predictions by it."""
        return predictions

    def settled(self) -> dict[str, Tensor]:
        """Return what `settle` chose, to be saved with the learned tensors."""
        return {}

    def recall(self, tensors: dict[str, Tensor]) -> None:
        """Take what `settled` returned from saved tensors."""
        return

    def begin(self) -> bool:
        """Take first values from the backbone's files; return whether they have any."""
        return False

    def words(self) -> list[int] | None:
        """Return the token ids of the label words; None if it reads none."""
        return None

    def first_words(self) -> "Verbalizer | None":
        """Return the label words of which the first piece alone is read; None if there are none."""
        return None

    def doubt(self, examples: Sequence[Features]) -> str | None:
        """Return a warning about the encoded training examples, with a remedy."""
        return None

    def study(self) -> list[Example]:
        """Return the training examples that the loaded backbone writes."""
        return []

    def unprepared(self, features: Sequence[Features], *, training: bool) -> Sequence[Features]:
        """Return the examples that need `prepare` before they are read."""
        return ()

    def prepare(self, batch: Batch) -> None:
        """Process examples once, before training or prediction reads them."""
        return

    def keep(self, features: Sequence[Features]) -> None:
        """Write what `prepare` found of examples to `store`."""
        return

    def stored(self, train: int, others: int, answer: int) -> int:
        """Return at most how many bytes `keep` writes for examples with `answer` learned tokens."""
        return 0

    def answerable(self, examples: Sequence[Example]) -> Sequence[Example]:
        """Return the examples whose answer can be predicted."""
        return examples

    @abstractmethod
    def encode(self, examples: Sequence[Example], room: int) -> list[Features]:
        """Return the rows of each example, each at most `room` tokens long."""

    def request(self, inputs: BackboneInput, at: Positions) -> BackboneInput:
        """Return the input with a request for outputs at these positions, here hidden states."""
        return replace(inputs, hidden_at=at)

    @abstractmethod
    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return the loss `[]` summed over targets; the engine divides by their number."""

    @abstractmethod
    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return a prediction for each example, or features to read first."""


def unlimited(readout: Readout) -> Readout:
    """Return a read-out of the same modules whose task has no limit on tokens."""
    free: Any = copy(readout)
    free.task = copy(free.task)
    free.task.max_tokens = None
    return cast(Readout, free)


class WordReader(Readout):
    """A read-out of the language-model head."""

    def request(self, inputs: BackboneInput, at: Positions) -> BackboneInput:
        """Request the logits of words."""
        return replace(inputs, logits_at=at)
