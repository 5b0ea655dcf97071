"""Blank infilling: what is cut out, where it is written, and who sees it."""

import pytest
import torch

from ptrun.papers.models import BlockConfig, BlockLM
from workshop.pretrain.objective import Chance, blanked, infilling
from workshop.pretrain.rows import Batch
from workshop.pretrain.vocabulary import Marks

END, SOP, EOP, CLS, MASK = 0, 50, 51, 52, 53
SPECIAL = [END, SOP, EOP, CLS, MASK]
MARKS = Marks(END, begin=[CLS], end=[END], special=SPECIAL, stop=END, mask=MASK, piece=(SOP, EOP))
ROW = [CLS, 10, 11, 12, 13, 14, 15, END]
OUT = [bool(o) for o in (0, 0, 1, 1, 0, 0, 1, 0)]


def chance(seed=0):
    return Chance(torch.Generator().manual_seed(seed), MARKS, 60)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 33, "vocab_size": 60}
    no_dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    config = BlockConfig(**sizes, **no_dropout, pad_token_id=END)
    config._attn_implementation = "eager"
    return BlockLM(config).eval()


def test_spans_are_written_behind_the_text_at_the_places_of_their_masks():
    seen = set()
    first = [11, 12], [2, 2, 2], [1, 2, 3]
    second = [15], [5, 5], [1, 2]
    for seed in range(8):
        made = blanked(ROW, OUT, chance(seed))
        assert made.text == [CLS, 10, MASK, 13, 14, MASK, END]
        spans = [first, second] if made.answer[1] == 11 else [second, first]
        assert made.answer == [w for words, _, _ in spans for w in (SOP, *words)]
        assert made.targets == [w for words, _, _ in spans for w in (*words, EOP)]
        assert made.places == [p for _, places, _ in spans for p in places]
        assert made.inside == [i for _, _, inside in spans for i in inside]
        seen.add(made.answer[1])
    assert seen == {11, 15}, "the order of spans is drawn"


@torch.no_grad()
def test_the_written_out_row_gives_the_loss(model):
    """One blank by hand: both kinds of positions, and a mask that is the two halves'."""
    ids = torch.tensor([ROW])
    chosen = torch.tensor([[False] * 6 + [True, False]])
    batch = Batch(ids, ids * 0 + 1, ids * 0, torch.arange(8)[None], chosen)
    scored = infilling(0.0)(model, batch, chance())
    shown = torch.tensor([[CLS, 10, 11, 12, 13, 14, MASK, END, SOP, 15]])
    places = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7, 6, 6]])
    inside = torch.tensor([[0] * 8 + [1, 2]])
    seen = torch.zeros(10, 10)
    seen[:, 8:] = -1e9
    seen[8, 8] = seen[9, 8] = seen[9, 9] = 0
    words = model.get_input_embeddings()(shown)
    states = model.hidden(words, places, inside, attention_mask=seen[None, None], use_cache=False)
    logs = model.lm_head(states.last_hidden_state[0, 8:]).log_softmax(-1)
    assert float(scored.loss) == pytest.approx(float(-(logs[0, 15] + logs[1, EOP]) / 2), abs=1e-5)
    assert float(scored.reported) == pytest.approx(float(-logs[0, 15]), abs=1e-5)
    assert scored.targets.tolist() == [15]
