"""Pocket GLM: it reads as GLM does, and what it learned in its pre-training answers tasks."""

import pytest
import torch

from ptrun.method.manual_prompt import ManualPrompt
from tests.papers import glm_reference
from tests.readout.reading import pocket, task
from tests.small_runs import engine


@pytest.fixture(scope="module")
def backbone():
    return pocket("pocket_glm")


@torch.no_grad()
def log_probabilities(backbone, ids, answer):
    """Return those of all tokens `[S, V]` after each of an answer's, by the plain reference."""
    border, place = len(ids), ids.index(backbone.tokenizer().mask_token_id)
    state = glm_reference.original(backbone.model.state_dict())
    places = torch.tensor([*range(border), *[place] * len(answer)])
    inside = torch.tensor([0] * border + list(range(1, len(answer) + 1)))
    tokens = torch.tensor([*ids, *answer])
    logits = glm_reference.logits(state, tokens, places, inside, border, backbone.shape.heads)
    return logits[border:].log_softmax(-1)


def test_the_label_word_is_read_where_the_answer_begins(backbone):
    data = task("pocket_sentiment")
    examples = data.load("dev")[:6]
    method = ManualPrompt(backbone, data)
    tokenizer = backbone.tokenizer()
    begin = tokenizer.convert_tokens_to_ids("<|startofpiece|>")
    bad, good = tokenizer.convert_tokens_to_ids(["Ġbad", "Ġgood"])
    expected = []
    for features in method.encode(examples):
        ids = features.rows[0].ids
        assert (ids[0], ids[-1]) == (tokenizer.cls_token_id, tokenizer.eos_token_id)
        logs = log_probabilities(backbone, ids, [begin])[0]
        expected.append("positive" if logs[good] > logs[bad] else "negative")
    answers = engine(backbone).predict([method], [method.encode(examples)])[0]
    assert [a.value for a in answers] == expected and len(set(expected)) == 2
