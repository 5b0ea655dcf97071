"""Batches: rows whole, budgets kept, marks never hidden, answers in the last sentence."""

import random
from itertools import islice

import torch

from workshop.pretrain.recipe import Recipe
from workshop.pretrain.rows import Stream, mask_chances
from workshop.pretrain.vocabulary import Marks

MARKS = Marks(pad=0, begin=[2], end=[3], special=[0, 1, 2, 3, 4], stop=3, mask=4, pairs=True)
RECIPE = Recipe(
    name="x", objective="masked", model={}, vocabulary=60, steps=1, rate=1e-3, batch=200, length=40
)


def stream(**changes):
    rng = random.Random(1)
    rows = [
        [[rng.randint(5, 59) for _ in range(rng.randint(2, 6))] for _ in range(rng.randint(1, 5))]
        for _ in range(80)
    ]
    recipe = Recipe(**{**vars(RECIPE), **changes})
    chances = mask_chances(rows, MARKS, recipe, evenness=0.3)
    return Stream(rows, recipe, MARKS, 64, chances, rng, torch.Generator().manual_seed(0))


def test_every_row_comes_once_before_any_comes_again():
    source = stream()
    rows = [tuple(t for s in row for t in s) for row in source.rows]
    seen = []
    for batch in source.batches():
        for ids in batch.ids.tolist():
            seen.append(tuple(t for t in ids if t > 4))
        if len(seen) >= len(rows):
            break
    assert sorted(seen) == sorted(rows)


def test_marks_and_padding_are_never_chosen():
    for batch in islice(stream(masked=0.5).batches(), 50):
        assert (batch.ids[batch.chosen] > 4).all()


def test_answers_hide_words_of_the_last_sentence_only():
    source = stream(masked=0.5, answer_length=20, answer_batch=100)
    lasts = {tuple(t for s in row for t in s): len(row[-1]) for row in source.rows}
    for batch in islice(source.batches(answers=True), 30):
        for ids, chosen in zip(batch.ids.tolist(), batch.chosen.tolist(), strict=True):
            words = [(t, c) for t, c in zip(ids, chosen, strict=True) if t > 4]
            before = len(words) - lasts[tuple(t for t, _ in words)]
            assert not any(c for _, c in words[:before])
