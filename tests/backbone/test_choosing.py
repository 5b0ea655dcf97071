"""How tokens are chosen: as transformers and OpenAI's formulas have it, of written tokens alone."""

from dataclasses import replace

import pytest
import torch

from ptrun.backbone.choosing import Decoding, processors
from ptrun.backbone.generation import generate
from tests.backbone.test_generation import NEW, SOME, asked, row_of
from tests.exporting.runs import shipped

SHARES = torch.tensor([0.5, 0.25, 0.15, 0.07, 0.03])
BIAS = tuple((token, 6.0 if token % 3 else -2.0) for token in range(0, 300, 2))


def test_penalties_are_those_of_openai():
    scores = torch.tensor([[1.0, -2.0, 3.0, 0.5]]).repeat(2, 1)
    ids = torch.tensor([[3, 3, 0, 2, 2], [3, 3, 1, 0, 1]])  # two tokens of the prompt
    decoding = Decoding(presence_penalty=0.5, frequency_penalty=0.25)
    found = processors(decoding, None, before=2)(ids, scores)
    counts = torch.tensor([[1, 0, 2, 0], [1, 2, 0, 0]])
    assert torch.equal(found, scores - counts * 0.25 - (counts > 0) * 0.5)


@pytest.mark.filterwarnings("ignore:Passing `repetition_penalty`")  # as here: of written tokens
@pytest.mark.parametrize("kind", SOME)
@pytest.mark.parametrize(
    ("own", "theirs"),
    [
        ({"repetition_penalty": 1.7}, {"repetition_penalty": 1.7}),
        ({"logit_bias": BIAS}, {"sequence_bias": [[[token], value] for token, value in BIAS]}),
    ],
)
def test_greedy_texts_are_those_of_transformers(kind, own, theirs):
    import transformers

    backbone = shipped(kind)
    given, decoding = asked(backbone, prefix=False), Decoding(max_new_tokens=NEW, **own)
    auto = "AutoModelForCausalLM" if kind == "pocket_gpt2" else "AutoModelForSeq2SeqLM"
    stock = getattr(transformers, auto).from_pretrained(backbone.folder, dtype=torch.float32)
    options = {"max_new_tokens": NEW, "do_sample": False, "eos_token_id": None, "pad_token_id": 1}
    changed = 0
    for alone in (row_of(given, row) for row in range(3)):
        start = {"inputs_embeds": stock.get_input_embeddings()(alone.ids)}
        if alone.decoder is not None:
            first = alone.decoder.ids[:, :1]
            decoder = replace(alone.decoder, ids=first, mask=alone.decoder.mask[:, :1])
            alone = replace(alone, decoder=decoder)
            start = {"input_ids": alone.ids, "decoder_input_ids": first}
        mask = alone.mask.long()
        (wanted,) = stock.generate(**start, **theirs, **options, attention_mask=mask).tolist()
        assert generate(backbone, alone, decoding) == [wanted[-NEW:]]
        changed += generate(backbone, alone, Decoding(max_new_tokens=NEW)) != [wanted[-NEW:]]
    assert changed


@pytest.mark.parametrize(
    ("own", "left"),
    [
        ({}, 5),
        ({"top_k": 2}, 2),
        ({"top_p": 0.8}, 3),
        ({"min_p": 0.2}, 3),
        ({"min_p": 0.2, "top_k": 2}, 2),
        ({"min_p": 0.3, "temperature": 2.0}, 4),  # after the temperature
        ({"logit_bias": ((0, -100.0), (4, 100.0)), "min_p": 0.5}, 1),
    ],
)
def test_draws_follow_the_probabilities_of_what_is_left(own, left):
    decoding = Decoding(**{"temperature": 1.0, **own})
    rows = 3000
    scores = SHARES.log().expand(rows, -1)
    drawn = processors(decoding, range(rows))(torch.zeros(rows, 0).long(), scores).argmax(dim=1)
    logits = SHARES.log() + torch.tensor([dict(decoding.logit_bias).get(t, 0.0) for t in range(5)])
    wanted = (logits / decoding.temperature).softmax(0)
    wanted = torch.where(wanted >= wanted.topk(left).values[-1], wanted, 0.0)
    found = drawn.bincount(minlength=5) / rows
    # three standard deviations
    torch.testing.assert_close(found, wanted / wanted.sum(), atol=0.03, rtol=0)


def test_a_row_s_grammar_sees_its_text_and_rules_out_before_all_else():
    seen = []

    def odd(written, scores):
        seen.append(list(written))
        return scores.masked_fill(torch.arange(5) % 2 == 0, -torch.inf)

    ids = torch.tensor([[7, 1], [7, 2]])
    decoding = Decoding(temperature=1.0, top_k=1)
    chain = processors(decoding, [1, 2], [odd, None], before=1)
    for _ in range(5):
        assert chain(ids, SHARES.log().expand(2, -1)).argmax(dim=1).tolist() == [1, 0]
    assert seen == [[1]] * 5
