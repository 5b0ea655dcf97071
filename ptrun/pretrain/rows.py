"""From documents to endless batches of rows: one document a row, rows of like length together."""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from ptrun.pretrain.recipe import Recipe
from ptrun.pretrain.vocabulary import Marks

Row = list[list[int]]
_MARKS = 3  # most marks in a row


@dataclass(frozen=True)
class Batch:
    """Rows of a step, all `[B, T]`.

    `chosen` are those that objectives which hide something hide.
    """

    ids: Tensor
    mask: Tensor
    types: Tensor
    positions: Tensor
    chosen: Tensor

    def to(self, device: str) -> "Batch":
        """Return the batch on a device."""
        return Batch(*(value.to(device) for value in vars(self).values()))


def rows(encode: object, documents: Iterable[list[str]], length: int) -> list[Row]:
    """Return one row for each document: its sentences, as token ids.

    A document of more than `length` tokens goes on in another row. Rows stay short so that a
    verdict sees its own review only; packed rows hid what belongs together from so small a model.
    """
    found: list[Row] = []
    for document in documents:
        found.append([])
        for coded in encode.encode_batch(document, add_special_tokens=False):  # type: ignore[attr-defined]
            if sum(map(len, found[-1])) + len(coded.ids) + _MARKS > length:
                found.append([])
            found[-1].append(coded.ids[: length - _MARKS])
    return [row for row in found if row]


def flattened(packed: list[Row], stop: int) -> Tensor:
    """Return all tokens of all rows, a stop after each row."""
    return torch.tensor([t for row in packed for t in (*chain.from_iterable(row), stop)])


def mask_chances(packed: list[Row], marks: Marks, recipe: Recipe, evenness: float) -> Tensor:
    """Return the chance `[words]` of each entry to be masked: 15 % of all, rare words more often.

    Templates make function words easy; what an opinion or a name means is in the rarer words.
    """
    counts = torch.bincount(flattened(packed, marks.stop), minlength=recipe.vocabulary)
    counts[marks.special] = 0
    weights = counts.clamp(min=1) ** -evenness
    share = (counts * weights).sum() / counts.sum()
    chances = (weights / share * recipe.masked).clamp(max=0.5)
    chances[marks.special] = 0.0
    return chances


@dataclass(frozen=True)
class Stream:
    """Endless batches from rows, with the two sources of chance that decide them."""

    rows: list[Row]
    recipe: Recipe
    marks: Marks
    positions: int
    """How many positions the model can number; half of the rows start anywhere among them."""
    chances: Tensor
    rng: random.Random
    dice: torch.Generator

    def has_answers(self) -> bool:
        """Return whether there are rows short enough for batches of answers."""
        return any(sum(map(len, row)) + _MARKS <= self.recipe.answer_length for row in self.rows)

    def batches(self, *, answers: bool = False) -> Iterator[Batch]:
        """Yield batches of rows of like length, every row once before any comes again.

        Batches of `answers` hold short rows, and hide words of their last sentences only.
        """
        recipe = self.recipe
        longest = recipe.answer_length if answers else recipe.length
        budget = recipe.answer_batch if answers else recipe.batch
        sizes = [sum(map(len, row)) + _MARKS for row in self.rows]
        short = [i for i, size in enumerate(sizes) if size <= longest]
        while short:
            order = sorted(short, key=lambda i: (sizes[i], self.rng.random()))
            groups: list[list[Row]] = [[]]
            for i in order:
                if (len(groups[-1]) + 1) * sizes[i] > budget:
                    groups.append([])
                groups[-1].append(self.rows[i])
            self.rng.shuffle(groups)
            yield from (self.batch(group, answers) for group in groups if group)

    def batch(self, chosen: list[Row], answers: bool) -> Batch:
        """Return a batch; every second row starts at a random position."""
        made = [laid_out(row, self.marks, answers, self.rng) for row in chosen]
        width = max(len(row.ids) for row in made)
        pad = self.marks.pad
        ids = torch.tensor([row.ids + [pad] * (width - len(row.ids)) for row in made])
        types = torch.tensor([row.types + [0] * (width - len(row.ids)) for row in made])
        focus = torch.tensor([row.focus + [0.0] * (width - len(row.ids)) for row in made])
        mask = torch.tensor([[1] * len(r.ids) + [0] * (width - len(r.ids)) for r in made])
        spare = self.positions - width
        shifts = [self.rng.randint(0, spare) * self.rng.randint(0, 1) for _ in made]
        positions = torch.arange(width) + torch.tensor(shifts)[:, None]
        picked = torch.rand(ids.shape, generator=self.dice) < self.chances[ids] * focus
        return Batch(ids, mask, types, positions, picked)


@dataclass
class Laid:
    """A row as the model reads it: ids, token types, and how much likelier each is to be masked."""

    ids: list[int]
    types: list[int]
    focus: list[float]


def laid_out(row: Row, marks: Marks, answers: bool, rng: random.Random) -> Laid:
    """Return a row with its marks; of models of pairs, half of the rows are cut in two.

    For `answers` only the last sentence is masked; else, in half of the rows, one sentence is
    masked more and the others less. What is hidden must then be read from other sentences.
    """
    many = len(row) > 1
    cut = rng.randrange(1, len(row)) if many and marks.pairs and rng.random() < 0.5 else len(row)
    focused = rng.randrange(len(row)) if many and rng.random() < 0.5 else None
    made = Laid([*marks.begin], [0] * len(marks.begin), [0.0] * len(marks.begin))
    for i, sentence in enumerate(row):
        weight = 1.0 if focused is None else 2.5 if i == focused else 0.5
        if answers:
            weight = 2.5 if i == len(row) - 1 else 0.0
        end = marks.end if i + 1 in (cut, len(row)) else []
        made.ids += sentence + end
        made.types += [int(i >= cut)] * len(sentence + end)
        made.focus += [weight] * len(sentence + end)
    return made
