"""What the objectives hide, show and score."""

import pytest
import torch

from tests.tiers import package
from workshop.pretrain.objective import auc, cut_spans
from workshop.pretrain.vocabulary import Marks

T5 = Marks(pad=0, begin=[], end=[], special=[0, 1, 2, 97, 98, 99], stop=1, sentinels=(99, 98, 97))


@pytest.mark.parametrize(
    ("out", "left", "answer"),
    [
        ([0, 1, 0, 0], [10, 99, 12, 13], [99, 11, 1]),
        ([1, 1, 0, 1], [99, 12, 98], [99, 10, 11, 98, 13, 1]),
        ([0, 0, 0, 0], [10, 11, 12, 13, 99], [99, 1]),
        ([1, 0, 1, 0], [99, 11, 98, 13], [99, 10, 98, 12, 1]),
    ],
)
def test_gaps_are_marked_in_the_input_and_told_behind_their_sentinels(out, left, answer):
    assert cut_spans([10, 11, 12, 13], [bool(o) for o in out], T5) == (left, answer)


def test_the_area_under_the_curve_equals_sklearn():
    package("sklearn")
    from sklearn import metrics

    generator = torch.Generator().manual_seed(1)
    for digits in (1, 6):  # with and without ties
        scores = torch.randn(500, generator=generator).round(decimals=digits)
        targets = torch.rand(500, generator=generator) < 0.2
        expected = metrics.roc_auc_score(targets.numpy(), scores.numpy())
        assert float(auc(scores, targets)) == pytest.approx(expected, abs=1e-6)
