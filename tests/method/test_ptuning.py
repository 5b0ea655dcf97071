"""P-tuning: vectors in the place of word embeddings, in both of the paper's regimes."""

from dataclasses import replace

import pytest
import torch

from ptrun.errors import UserError
from ptrun.method.base import Method, check_pair
from ptrun.method.ptuning import PTuning
from ptrun.prompt import PromptEncoder
from tests.facts import asked, backbone, facts, task
from tests.readings import reading
from tests.small_runs import engine
from tests.tiers import package

FAMILIES = ["bert", "albert", "roberta", "gpt2", "t5"]


def plain(kind, tiny, folder):
    """Return a tiny backbone prompted on facts by nine vectors (six of GPT-2) of no encoder."""
    torch.manual_seed(0)
    return PTuning(tiny(kind), facts(folder), encoder="plain")


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.slow
def test_vectors_of_a_word_are_the_discrete_pattern(tiny, tmp_path, kind):
    method, examples = plain(kind, tiny, tmp_path), facts(tmp_path).load("test")
    batch, word = asked(method, examples), 9
    method.prompt.table.data.copy_(method.backbone.embed(torch.tensor(word)))
    written = batch.ids.scatter(1, batch.softs, word)
    discrete = Method.inputs(method, replace(batch, ids=written))
    ours, theirs = (method.backbone.forward(g).logits for g in (method.inputs(batch), discrete))
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


def test_positions_of_a_subject_of_two_tokens_in_both_orders(tiny, tmp_path):
    loaded, examples = tiny(), facts(tmp_path).load("test")[2:3]
    paper, code = (
        asked(PTuning(loaded, facts(tmp_path), reading("verbalizer", pattern=p)), examples)
        for p in ("ptuning", "ptuning_code")
    )
    assert paper.softs.tolist() == [[1, 2, 3, 6, 7, 8, 10, 11, 12]]
    assert paper.reads.columns.tolist() == [9] and paper.ids.shape == (1, 14)
    assert code.softs.tolist() == [[1, 2, 3, 5, 6, 7, 10, 11, 12]]
    assert code.reads.columns.tolist() == [4] and code.ids.shape == (1, 14)
    assert paper.ids[0, 4:6].tolist() == code.ids[0, 8:10].tolist()


@pytest.fixture(scope="module")
def pocket_gpt2():
    loaded = backbone("pocket_gpt2")
    loaded.load()
    return loaded


def gradients(loaded, **keys):
    """Return the gradient of each of the six prompt rows of a left-to-right backbone."""
    data = task("pocket_facts", None)
    torch.manual_seed(0)
    method = PTuning(loaded, data, reading("verbalizer", **keys), encoder="plain")
    examples = [e for e in data.load("train")[:200] if bool(method.readout.answerable([e]))][:8]
    batch = engine(loaded)._collate(method.encode(examples))
    method.loss(loaded.forward(method.inputs(batch)), batch).backward()
    return method.prompt.table.grad.abs().sum(dim=1)


@pytest.mark.slow
def test_every_row_of_gpt_learns_and_the_released_label_leaves_the_last_without(pocket_gpt2):
    right, released = gradients(pocket_gpt2), gradients(pocket_gpt2, shifted_label=True)
    assert len(right) == 6 and (right > 0).all()
    assert (released[:5] > 0).all() and released[5] == 0


def test_gpt_logits_equal_those_of_peft(pocket_gpt2):
    """Vectors before the text: PEFT's P-tuning of the same checkpoint, to 1e-5."""
    package("peft")
    import peft
    from transformers import GPT2LMHeadModel

    pattern = "task.pvps={front: {pattern: '{soft:3} {sub_label} {mask}'}}"
    data = task("pocket_facts", None, pattern)
    method = PTuning(pocket_gpt2, data, reading("verbalizer", pattern="front"))
    batch = asked(method, data.load("test")[:1])
    config = peft.PromptEncoderConfig(
        task_type="CAUSAL_LM",
        num_virtual_tokens=3,
        encoder_hidden_size=pocket_gpt2.shape.hidden_size // 2,
        encoder_reparameterization_type="LSTM",
        encoder_dropout=0.0,
    )
    model = GPT2LMHeadModel.from_pretrained(pocket_gpt2.folder, dtype=torch.float32)
    theirs = peft.get_peft_model(model, config)
    copied(method.prompt, theirs.eval().prompt_encoder["default"])
    expected = theirs(batch.ids[:, 3:]).logits[:, -1]
    found = pocket_gpt2.forward(method.inputs(batch)).logits
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("name", "task_name", "node", "message"),
    [
        ("bert_base_cased", "rte", {"readout": "head"}, "readout=head: this method supports only"),
        ("gpt2", "wsc", {}, "task=wsc has no pattern for this method on this causal backbone"),
        ("t5_v1_1_base", "wsc", {}, "needs its gap filled, which masked"),
        ("bert_base_cased", "rte", {"pattern": "manual1"}, r"manual1 has no \{soft\} slot; .*ptun"),
        ("electra_base", "rte", {}, "electra_base has no language-model head"),
    ],
)
def test_what_cannot_be_is_refused_before_loading(name, task_name, node, message):
    with pytest.raises(UserError, match=message):
        option = node.pop("readout", "auto")
        check_pair(PTuning, option, node, backbone(name), task(task_name, "."))


# The prompt encoder: what couples its rows, and PEFT's on equal weights.


@pytest.mark.parametrize(
    ("kind", "coupled"), [("lstm", True), ("mlp", False), ("mlp3", False), ("plain", False)]
)
def test_an_lstm_couples_the_rows_and_nothing_else_does(kind, coupled):
    torch.manual_seed(0)
    encoder = PromptEncoder(5, 8, kind)
    encoder()[1].sum().backward()
    moved = encoder.table.grad.abs().sum(dim=1) > 0
    assert moved[1] and moved[[0, 2, 3, 4]].tolist() == [coupled] * 4


def test_three_maps_are_those_of_peft():
    package("peft")
    import peft

    config = peft.PromptEncoderConfig(
        num_virtual_tokens=5, token_dim=8, encoder_hidden_size=8, num_transformer_submodules=1
    )
    theirs, ours = peft.PromptEncoder(config), PromptEncoder(5, 8, "mlp3")
    ours.table.data.copy_(theirs.embedding.weight)
    ours.mlp.load_state_dict(theirs.mlp_head.state_dict())
    torch.testing.assert_close(ours(), theirs(torch.arange(5)), rtol=0, atol=0)


def copied(ours, theirs):
    """Return our encoder with the weights of PEFT's."""
    ours.table.data.copy_(theirs.embedding.weight)
    ours.lstm.load_state_dict(theirs.lstm_head.state_dict())
    ours.mlp.load_state_dict(theirs.mlp_head.state_dict())
    return ours
