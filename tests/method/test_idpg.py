"""IDPG against the library's own model with hooks, and the method's invariants."""

import pytest
import torch
import transformers
from torch.nn.functional import gelu

from ptrun.config.compose import compose_run
from ptrun.method.fine_tuning import FineTuning
from ptrun.method.idpg import IDPG
from tests.method.test_every_kind import joined_members_are_alone, rows_are_alone
from tests.readings import method_of, reading
from tests.small_runs import conll03, scores, sst2, train_batch

SMALL = {"hidden": 8, "order": 4}
ENCODERS = ["bert", "roberta", "electra", "albert", "deberta", "deberta-v2"]
POSITIONS = [("bert", position) for position in range(5)]  # of the prompt, in any encoder's rows
POSITIONS += [(kind, place % 5) for place, kind in enumerate(ENCODERS[1:])]


def made(backbone, data_dir, seed=3, read_out=None, **own):
    torch.manual_seed(seed)
    method = IDPG(backbone, sst2(data_dir), read_out, **{**SMALL, **own})
    for parameter in method.prompt.parameters():  # else instances hardly matter
        parameter.data.normal_(std=0.5)
    return method


def assert_same(one, other, atol=1e-5):
    torch.testing.assert_close(one, other, atol=atol, rtol=1e-5)


def reference(folder, ids, generators, source):
    """IDPG after `<s>` on a transformers RoBERTa, one unpadded row at a time, W by torch.kron."""
    model = transformers.RobertaModel.from_pretrained(folder, add_pooling_layer=False).eval()
    (own,) = generators.generators.values()
    first = model(torch.tensor([ids])).last_hidden_state[:, 0]

    def prompt(site, z):
        hidden = gelu(z @ own.down.weight() + own.down.bias)
        return (hidden @ own.up.weight()).view(1, 5, -1) + generators.biases[str(site)]

    def hook(site):
        def edit(_module, _arguments, output):
            hidden = output[0] if isinstance(output, tuple) else output
            z = hidden[:, 0] if source == "previous" else first
            hidden = hidden.clone()
            hidden[:, 1:6] += prompt(site, z)
            return (hidden, *output[1:]) if isinstance(output, tuple) else hidden

        return edit

    for index, layer in enumerate(model.encoder.layer[:-1]):
        layer.register_forward_hook(hook(index + 1))
    words = model.embeddings.word_embeddings(torch.tensor([ids]))
    joined = torch.cat([words[:, :1], prompt(0, first), words[:, 1:]], dim=1)
    positions = torch.arange(joined.shape[1])[None] + 2
    return model(inputs_embeds=joined, position_ids=positions).last_hidden_state[0, 0]


@pytest.mark.parametrize("source", ["previous", "first"])
@torch.no_grad()
def test_it_is_the_librarys_model_with_prompts_added(tiny, tiny_folder, data_dir, source):
    method = made(tiny("roberta"), data_dir, source=source, read_out=reading("head", pooler="none"))
    batch = train_batch(method)
    ours = method.backbone.forward(method.inputs(batch)).hidden
    for row, hidden in zip(batch.rows, ours, strict=True):
        own = reference(tiny_folder("roberta"), row.ids, method.prompt, source)
        assert_same(hidden, own, atol=1e-4)


@pytest.mark.parametrize(("kind", "position"), POSITIONS)
@torch.no_grad()
def test_without_second_map_prompts_are_biases_alone(tiny, data_dir, kind, position):
    backbone = tiny(kind)
    whole = made(backbone, data_dir, position=position)
    still = made(backbone, data_dir, position=position, generator="none")
    still.load_state_dict(whole.state_dict(), strict=False)
    batch = train_batch(whole)
    assert not torch.allclose(scores(whole, batch), scores(still, batch), atol=1e-3)
    for own in whole.prompt.generators.values():
        own.up.mixing.zero_()
    assert_same(scores(whole, batch), scores(still, batch))


@torch.no_grad()
def test_tied_l_is_m_and_tied_m_is_s(tiny, data_dir):
    backbone = tiny()
    s, m, each = (made(backbone, data_dir, sharing=kind) for kind in "SML")
    for method in (m, each):
        for own in method.prompt.generators.values():
            own.load_state_dict(s.prompt.generators["0"].state_dict())
        for bias in method.prompt.biases.values():
            bias.copy_(s.prompt.biases["0"])
        method.readout.load_state_dict(s.readout.state_dict())
    batch = train_batch(s)
    assert torch.equal(scores(m, batch), scores(s, batch))
    assert torch.equal(scores(each, batch), scores(s, batch))


@torch.no_grad()
def test_no_vectors_are_the_bare_backbone(tiny, data_dir):
    backbone = tiny()
    empty = made(backbone, data_dir, length=0)
    bare = FineTuning(backbone, sst2(data_dir))
    bare.readout.load_state_dict(empty.readout.state_dict())
    batch = train_batch(empty)
    torch.testing.assert_close(scores(empty, batch), scores(bare, batch), atol=0, rtol=0)


@torch.no_grad()
def test_every_site_matters_and_none_is_after_the_last_layer(tiny, data_dir):
    method = made(tiny(), data_dir)
    batch = train_batch(method)
    before = scores(method, batch)
    assert list(method.prompt.biases) == ["0", "1", "2"]  # 3 layers
    assert set(method.inputs(batch).edits) == {("layer", 0), ("layer", 1)}
    for bias in method.prompt.biases.values():
        kept = bias.clone()
        bias.normal_()
        assert not torch.allclose(scores(method, batch), before, atol=1e-4)
        bias.copy_(kept)


@pytest.mark.parametrize(("kind", "position"), POSITIONS)
@torch.no_grad()
def test_a_row_depends_on_itself_and_its_key_alone(tiny, data_dir, kind, position):
    """Whatever stands beside it, however far it is padded, in training too."""
    rows_are_alone(made(tiny(kind), data_dir, position=position))


@torch.no_grad()
def test_members_in_one_pass_answer_as_each_alone(tiny, data_dir):
    backbone = tiny()
    members = [
        made(backbone, data_dir),
        made(backbone, data_dir, seed=5, position=4, source="first"),
        made(backbone, data_dir, seed=6, deep=False, length=2),
    ]
    joined_members_are_alone(members, atol=1e-5)


@pytest.mark.parametrize("position", range(5))
def test_tags_are_read_at_the_moved_words(tiny, data_dir, position):
    method = IDPG(tiny(), conll03(data_dir), position=position, **SMALL)
    batch = train_batch(method)
    given = method.inputs(batch)
    text = method.backbone.embed(batch.ids)[batch.reads.rows, batch.reads.columns]
    assert torch.equal(given.embeddings[given.hidden_at.rows, given.hidden_at.columns], text)


@pytest.mark.parametrize(
    ("option", "count"),
    [
        ("idpg", 137_232),
        ("idpg_dnn", 221_200),
        ("idpg_glove", 144_704),
        ("idpg_s", 107_776),
        ("idpg_s_dnn", 1_578_240),
        ("idpg_ptuning_v2", 122_880),
        ("idpg_prompt_tuning", 5_120),
        ("idpg_prompt_tuning_134", 137_216),
        ("adapter", 1_622_784),
        ("compacter", 152_832),
    ],
)
@pytest.mark.slow
def test_counts_on_roberta_large_are_the_papers(data_dir, tmp_path, option, count):
    """Each row of the paper's Table 1 by the word a user types, and its recipe."""
    composed = compose_run(["backbone=roberta_large", f"method={option}"])
    node = composed.config
    if option == "idpg_glove":
        node["method"]["glove"] = str(tmp_path / "vectors.txt")
        (tmp_path / "vectors.txt").write_text("the" + " 0.1" * 300 + "\n")
    with torch.device("meta"):
        method = method_of(composed, task=sst2(data_dir))
    counted = method.learned_parameters()
    assert counted["prompt"] == count and counted["backbone"] == 0
    assert counted["head"] == 1_051_650  # learned too, though the paper does not count it
    assert [node["train"][key] for key in ("weight_decay", "clip")] == [0.1, None]
    assert node["train"]["schedule"] == "constant"
    assert method.readout.dropout == 0.0  # fairseq's pooler dropout, not the backbone's 0.1
