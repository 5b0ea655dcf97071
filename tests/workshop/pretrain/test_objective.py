"""What the objectives hide, show and score."""

import pytest
import torch

from tests.tiers import package
from workshop.pretrain.objective import Chance, auc, cut_spans, masked, replaced
from workshop.pretrain.rows import Batch
from workshop.pretrain.vocabulary import Marks

T5 = Marks(pad=0, begin=[], end=[], special=[0, 1, 2, 97, 98, 99], stop=1, sentinels=(99, 98, 97))
BERT = Marks(pad=0, begin=[2], end=[3], special=[0, 1, 2, 3, 4], stop=3, mask=4, pairs=True)


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


class Spy:
    """Stands for a model: keeps what it is shown."""

    def __init__(self, words):
        self.words = words

    def base_model(self, input_ids, **_):
        self.shown = input_ids
        return type("Out", (), {"last_hidden_state": torch.zeros(*input_ids.shape, 8)})

    def cls(self, hidden):
        return torch.zeros(len(hidden), self.words)


def test_masked_words_are_shown_as_mask_word_or_themselves():
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, 500, (200, 50), generator=generator)
    every = torch.ones_like(ids)
    batch = Batch(ids, every, every * 0, every, torch.rand(ids.shape, generator=generator) < 0.5)
    spy = Spy(500)
    scored = masked(spy, batch, Chance(generator, BERT, 500))
    hidden = spy.shown[batch.chosen]
    assert torch.equal(spy.shown[~batch.chosen], ids[~batch.chosen])
    assert float((hidden == 4).float().mean()) == pytest.approx(0.8, abs=0.02)
    assert float((hidden == ids[batch.chosen]).float().mean()) == pytest.approx(0.1, abs=0.02)
    assert int(hidden.min()) >= 4 and torch.equal(scored.targets, ids[batch.chosen])
    assert float(scored.loss) == pytest.approx(torch.tensor(500.0).log().item(), abs=1e-4)


def test_the_generator_sees_a_share_of_the_words_and_the_discriminator_all_but_its_own():
    ids = torch.randint(5, 50, (40, 50), generator=torch.Generator().manual_seed(1))
    ids[:, 0], ids[:, -1] = 2, 3
    chosen = torch.zeros_like(ids, dtype=torch.bool)
    chosen[:, 10:15] = True
    batch = Batch(ids, torch.ones_like(ids), torch.zeros_like(ids), torch.zeros_like(ids), chosen)
    generator, seen = Spy(50), []

    def discriminator(input_ids, **_):
        seen.append(input_ids)
        return type("Out", (), {"logits": torch.zeros(input_ids.shape)})

    dice = torch.Generator().manual_seed(2)
    replaced(generator, 0.5)(discriminator, batch, Chance(dice, BERT, 50))
    words = ~chosen & (ids > 4)
    hidden = generator.shown == BERT.mask
    assert hidden[chosen].all() and not hidden[ids < 5].any()
    assert 0.4 < hidden[words].float().mean() < 0.6
    assert (seen[0][words] == ids[words]).all() and (seen[0] != ids)[chosen].float().mean() > 0.9
