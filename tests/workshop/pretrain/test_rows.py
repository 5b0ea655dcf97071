"""Batches: rows whole, budgets kept, marks never hidden, answers in the last sentence."""

import random
from itertools import islice

import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from workshop.pretrain.recipe import Recipe
from workshop.pretrain.rows import Stream, laid_out, mask_chances, rows
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


def test_rows_hold_no_padding_of_the_tokenizer():
    """Those of sentence encoders are saved with a fixed length, and stay as they are."""
    tokenizer = Tokenizer(models.WordLevel({"[PAD]": 0, "a": 1, "b": 2}, unk_token="[PAD]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.enable_padding(length=8)
    tokenizer.enable_truncation(2)
    assert rows(tokenizer, [["a b", "b b a"], ["a"]], 10) == [[[1, 2], [2, 2, 1]], [[1]]]
    assert tokenizer.padding["length"] == 8 and tokenizer.truncation["max_length"] == 2


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


def test_batches_keep_the_budget_and_number_positions_within_the_model():
    for batch in islice(stream().batches(), 50):
        assert batch.ids.numel() <= 200 + 40
        assert int(batch.positions.max()) < 64
        assert torch.equal(batch.mask, (batch.ids != 0).long())


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


def test_models_without_pairs_lay_a_row_out_in_one_piece():
    marks = Marks(pad=0, begin=[1], end=[1], special=[0, 1], stop=1)
    row = laid_out([[5, 6], [7], [8, 9]], marks, False, random.Random(0))
    assert row.ids == [1, 5, 6, 7, 8, 9, 1] and set(row.types) == {0}
