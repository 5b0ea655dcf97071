"""Adaptation's loss is the library's, however the texts are passed, and it is learned."""

import pytest
import torch
import transformers

from workshop.adapt import Adaptation, Continuations, Trainer, divided

TEXTS = [[6, 7, 8, 9, 10, 11], [12, 13, 14], [9, 8, 7, 6, 5, 14, 13, 12]]


def trainer(backbone, **keys):
    recipe = Adaptation(**{"precision": "fp32", "rate": 1e-2, **keys})
    return Trainer(backbone, recipe, Continuations(recipe, lambda lines: [], 0), "cpu")


@pytest.mark.parametrize("sentinel", [None, 4], ids=["plain", "marked"])
def test_the_loss_is_the_librarys(tiny, tiny_folder, sentinel):
    made, texts = trainer(tiny("t5")), [divided(t, 2, 0, sentinel) for t in TEXTS]
    model = transformers.T5ForConditionalGeneration.from_pretrained(tiny_folder("t5")).eval()
    total = 0.0
    for text in texts:
        ids, labels = torch.tensor([text.rows[0].ids]), torch.tensor([text.targets])
        with torch.no_grad():
            total += float(model(input_ids=ids, labels=labels).loss) * len(text.targets)
    wanted = total / sum(len(text.targets) for text in texts)
    with torch.no_grad():
        losses = made._losses_of(texts)  # in one padded pass
    assert abs(float(losses.mean()) - wanted) < 1e-5
    assert made.evaluate(texts)["loss"] == round(wanted, 4)


def test_passes_keep_to_their_budget_and_change_no_step(tiny):
    texts = [divided(t, 2, 0) for t in TEXTS]
    weights = []
    for budget in (1, 1000):
        made = trainer(tiny("t5"), token_budget=budget)
        assert len(made._passes(texts)) == (3 if budget == 1 else 1)
        made._update(texts)
        weights.append({n: p.detach().clone() for n, p in made.learned.items()})
    for name, one in weights[0].items():
        torch.testing.assert_close(one, weights[1][name], atol=1e-4, rtol=0)
