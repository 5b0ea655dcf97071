"""Vectors put into rows, row by row, at every place of IDPG's appendix A.5."""

import pytest
import torch

from ptrun.method.idpg import Insertion, place

ROWS = ["<a//bc/", "<a/bcde/", "<abc/", "</"]  # < is [CLS], / a separator


def cells(rows):
    width = max(map(len, rows))
    tokens = torch.tensor([[ord(c) for c in row.ljust(width, ".")] for row in rows])
    return tokens, tokens != ord("."), tokens == ord("/")


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (0, ["<PPa//bc/", "<PPa/bcde/", "<PPabc/", "<PP/"]),
        (1, ["<aPP//bc/", "<aPP/bcde/", "<abcPP/", "<PP/"]),
        (2, ["<a//PPbc/", "<a/PPbcde/", "<abc/PP", "</PP"]),
        (3, ["<a//bcPP/", "<a/bcdePP/", "<abcPP/", "<PP/"]),
        (4, ["<a//bc/PP", "<a/bcde/PP", "<abc/PP", "</PP"]),
    ],
)
def test_prompts_stand_where_they_should(position, expected):
    tokens, mask, separators = cells(ROWS)
    put = Insertion(place(position, mask, separators), tokens.shape[1], 2)
    woven = put.weave(tokens, torch.full((4, 2), ord("P")))
    texts = ["".join(map(chr, row)).rstrip(".") for row in woven.tolist()]
    assert texts == expected


def test_a_row_without_separator_has_its_prompt_at_the_end():
    _, mask, separators = cells(["<abc", "<abc/a"])
    assert [place(p, mask, separators)[0].item() for p in range(5)] == [1, 4, 4, 4, 4]


@pytest.mark.parametrize("at", [0, 1, 3, 5])
def test_every_token_is_found_where_it_moved(at):
    tokens = torch.arange(10).view(2, 5) + 1
    put = Insertion(torch.tensor([at, 5 - at]), 5, 3)
    woven = put.weave(tokens, torch.zeros(2, 3, dtype=torch.long))
    rows, columns = torch.arange(2).repeat_interleave(5), torch.arange(5).repeat(2)
    assert torch.equal(woven[rows, put.moved(rows, columns)], tokens.flatten())
