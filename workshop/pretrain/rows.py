"""The documents of a corpus as endless batches: one per row, rows of like length together."""

import gzip
import json
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from ptrun.errors import UserError
from workshop.pocket import corpus as pocket
from workshop.pretrain.recipe import Recipe
from workshop.pretrain.vocabulary import Marks

_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
Row = list[list[int]]
_MARKS = 3  # most marks in a row


def documents(corpus: str, split: str) -> Iterator[list[str]]:
    """Yield the documents of a split, each its sentences in order.

    Raises:
        UserError: the folder has no such split, or a line is not `{"doc": text}`.
    """
    if corpus == "pocket":
        yield from pocket.documents(split)
        return
    file = _file(Path(corpus), split)
    opener = gzip.open if file.suffix == ".gz" else open
    with opener(file, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            yield [part for part in _SENTENCE.split(_text(line, file, number)) if part.strip()]


def _file(folder: Path, split: str) -> Path:
    for suffix in (".jsonl", ".jsonl.gz"):
        if (file := folder / f"{split}{suffix}").is_file():
            return file
    raise UserError(f"corpus={folder}: no {split}.jsonl or {split}.jsonl.gz there.")


def _text(line: str, file: Path, number: int) -> str:
    try:
        text = json.loads(line)["doc"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise UserError(f'{file}, line {number}: expected {{"doc": "text"}}.') from error
    return str(text)


@dataclass(frozen=True)
class Batch:
    """The rows of a step, all `[B, T]`; `chosen` marks the tokens that an objective may hide."""

    ids: Tensor
    mask: Tensor
    types: Tensor
    positions: Tensor
    chosen: Tensor

    def to(self, device: str) -> "Batch":
        """Return the batch on a device."""
        return Batch(*(value.to(device) for value in vars(self).values()))


def rows(encoder: Tokenizer, documents: Iterable[list[str]], length: int) -> list[Row]:
    """Return one row for each document: its sentences, as token ids.

    A document of more than `length` tokens continues in another row. Documents are not packed into
    one row: a model this small does not learn which sentences belong together then.
    """
    encode = Tokenizer.from_str(encoder.to_str())  # the folder's own keeps its settings
    encode.no_padding()  # a saved tokenizer may pad each sentence to a fixed length
    encode.no_truncation()
    packed: list[Row] = []
    for document in documents:
        packed.append([])
        for coded in encode.encode_batch(document, add_special_tokens=False):
            if sum(map(len, packed[-1])) + len(coded.ids) + _MARKS > length:
                packed.append([])
            packed[-1].append(coded.ids[: length - _MARKS])
    return [row for row in packed if row]


def padded(lists: Sequence[Sequence[float]], value: float) -> Tensor:
    """Return lists as one tensor `[B, T]`, padded on the right."""
    width = max(map(len, lists))
    return torch.tensor([[*row, *[value] * (width - len(row))] for row in lists])


def flattened(packed: list[Row], stop: int) -> Tensor:
    """Return the tokens of all rows, with a stop token after each row."""
    return torch.tensor([t for row in packed for t in (*chain.from_iterable(row), stop)])


def mask_chances(packed: list[Row], marks: Marks, recipe: Recipe, evenness: float) -> Tensor:
    """Return the probability `[words]` of masking each entry; rare words have a higher one.

    Templates make function words easy; opinions and names are in the rarer words.
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
    """Endless batches of rows; `rng` and `dice` decide them."""

    rows: list[Row]
    recipe: Recipe
    marks: Marks
    positions: int
    """Number of positions of the model; half of the rows start at a random one."""
    chances: Tensor
    rng: random.Random
    dice: torch.Generator

    def has_answers(self) -> bool:
        """Return whether any row is short enough for batches of answers."""
        return any(sum(map(len, row)) + _MARKS <= self.recipe.answer_length for row in self.rows)

    def batches(self, *, answers: bool = False) -> Iterator[Batch]:
        """Yield batches of rows of like length; each row occurs once per epoch.

        Batches of `answers` hold short rows and hide words of their last sentences only.
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
        laid = [laid_out(row, self.marks, answers, self.rng) for row in chosen]
        ids = padded([row.ids for row in laid], self.marks.pad)
        types = padded([row.types for row in laid], 0)
        focus = padded([row.focus for row in laid], 0.0)
        mask = padded([[1] * len(row.ids) for row in laid], 0)
        spare = self.positions - ids.shape[1]
        shifts = [self.rng.randint(0, spare) * self.rng.randint(0, 1) for _ in laid]
        positions = torch.arange(ids.shape[1]) + torch.tensor(shifts)[:, None]
        picked = torch.rand(ids.shape, generator=self.dice) < self.chances[ids] * focus
        return Batch(ids, mask, types, positions, picked)


@dataclass
class Laid:
    """A row as model input: ids, token types, and factors of the masking probability."""

    ids: list[int]
    types: list[int]
    focus: list[float]


def laid_out(row: Row, marks: Marks, answers: bool, rng: random.Random) -> Laid:
    """Return a row with its special tokens; for models of pairs, half of the rows are cut in two.

    With `answers`, only the last sentence is masked. Otherwise half of the rows mask one sentence
    more and the others less, so the model has to read the hidden words from other sentences.
    """
    many = len(row) > 1
    cut = rng.randrange(1, len(row)) if many and marks.pairs and rng.random() < 0.5 else len(row)
    focused = rng.randrange(len(row)) if many and rng.random() < 0.5 else None
    laid = Laid([*marks.begin], [0] * len(marks.begin), [0.0] * len(marks.begin))
    for i, sentence in enumerate(row):
        weight = 1.0 if focused is None else 2.5 if i == focused else 0.5
        if answers:
            weight = 2.5 if i == len(row) - 1 else 0.0
        end = marks.end if i + 1 in (cut, len(row)) else []
        laid.ids += sentence + end
        laid.types += [int(i >= cut)] * len(sentence + end)
        laid.focus += [weight] * len(sentence + end)
    return laid
