"""The log-probabilities of a prompt's tokens equal a stock model's, with the vectors in front."""

import pytest
import torch
from transformers import GPT2LMHeadModel

from ptrun.readout import scores
from ptrun.readout.base import collate
from ptrun.testing import read
from ptrun.types import Example

ROWS = [[5], [700, 3, 3, 41], [9, 2799]]


@pytest.mark.parametrize("size", [2, 64])
def test_scores_are_those_of_a_stock_model_with_vectors_in_front(monkeypatch, size):
    monkeypatch.setattr(scores, "_TOKENS", size)
    options = ["method=prompt_tuning", "method.length=4", "readout=verbalizer"]
    method, *_ = read(*options, "backbone=pocket_gpt2")
    method.readout = scores.Scores(method.backbone)
    examples = [Example(str(i), {"ids": ids, "top": 3}, None) for i, ids in enumerate(ROWS)]
    batch = collate(method.encode(examples), None, torch.device("cpu"))
    stock = GPT2LMHeadModel.from_pretrained(method.backbone.folder, dtype=torch.float32)
    total = 0.0
    with torch.no_grad():
        output = method.backbone.forward(method.inputs(batch))
        assert output.logits is None
        found = [one.value for one in method.decode(output, batch)]
        for ids, row in zip(ROWS, found, strict=True):
            words = stock.get_input_embeddings()(torch.tensor(ids))
            both = torch.cat([method.prompt.vectors(), words])[None]
            shares = stock(inputs_embeds=both).logits[0, 4:].log_softmax(-1)
            assert [score.token for score in row] == [*ids[1:], int(shares[-1].argmax())]
            for score, share in zip(row, shares, strict=True):
                assert score.logprob == pytest.approx(float(share[score.token]), abs=1e-4)
                values, tokens = share.topk(3)
                assert [token for token, _ in score.top] == tokens.tolist()
                assert [p for _, p in score.top] == pytest.approx(values.tolist(), abs=1e-4)
            total -= sum(score.logprob for score in row[:-1])
        assert float(method.loss(output, batch)) == pytest.approx(total, rel=1e-5)
