"""The dropouts and the norm epsilon of a backbone, against the library's own models."""

from dataclasses import replace

import pytest
import torch
import transformers

from ptrun.backbone import attention, dropout
from ptrun.backbone.injection import _DROPOUT_SITE
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from tests.backbone.inputs import KINDS, LENGTHS, every, text
from tests.config.test_config import names_of
from tests.families import PaperBackbone
from tests.tiers import tiered

ONE_DROPOUT = ("t5", "mt5")  # attention has the same
EPSILON = {"gpt2": "layer_norm_epsilon", "llama": "rms_norm_eps"}
EPSILON |= dict.fromkeys(("t5", "mt5", "blocklm"), "layer_norm_epsilon")
CORE = ("bert", "gpt2", "llama", "t5", "megatron")
TAKES = {
    "llama": {"attention_dropout": 0.6},
    "t5": {"dropout": 0.3},
    "mt5": {"dropout": 0.3},
}
every_kind = pytest.mark.parametrize("kind", tiered(KINDS, lambda kind: kind in CORE))


@pytest.fixture
def switched(tiny_folder):
    def load(kind, **options):
        backbone = PaperBackbone(name="x", path=str(tiny_folder(kind)), **options)
        backbone.load()
        return backbone

    return load


def taken(kind):
    return TAKES.get(kind, {"dropout": 0.3, "attention_dropout": 0.6})


def logits(backbone, *, training):
    keys = torch.arange(len(LENGTHS)) + 9 if training else None
    return backbone.forward(replace(text(backbone), keys=keys)).logits


@every_kind
def test_without_dropout_a_training_pass_equals_evaluation(switched, kind):
    off = switched(kind, **dict.fromkeys(taken(kind), 0.0))
    assert torch.equal(logits(off, training=True), logits(off, training=False))
    on = switched(kind, **taken(kind))
    assert not torch.equal(logits(on, training=True), logits(on, training=False))


@every_kind
def test_the_share_of_dropped_cells_is_the_value(switched, kind, monkeypatch):
    kept, whole = {"dropout": [], "attention_dropout": []}, dropout.Keyed.__call__

    def dropped(own, x):
        out = whole(own, x)
        attends = own.site >= _DROPOUT_SITE
        kept["attention_dropout" if attends else "dropout"].append((out != 0)[x != 0])
        return out

    def attended(x, lines, p, origin):
        out = dropout.drop_lines(x, lines, p, origin)
        kept["attention_dropout"].append((out != 0)[x != 0])
        return out

    monkeypatch.setattr(attention, "drop_lines", attended)
    monkeypatch.setattr(dropout.Keyed, "__call__", dropped)
    backbone = switched(kind, **taken(kind))
    for step in range(8):
        backbone.forward(replace(text(backbone), keys=torch.arange(len(LENGTHS)) + 50 * step))
    expected = dict(taken(kind))
    if kind in ONE_DROPOUT:
        expected["attention_dropout"] = expected["dropout"]
    for option, masks in kept.items():
        if option not in expected:
            assert not masks
            continue
        cells = torch.cat(masks).float()
        p, error = expected[option], 5 * (0.25 / len(cells)) ** 0.5
        assert abs(float(1 - cells.mean()) - p) < error + 0.01, option


@pytest.mark.parametrize(
    "kind", tiered([k for k in KINDS if k not in ("megatron", "blocklm")], lambda k: k in CORE)
)
def test_the_epsilon_is_that_of_a_library_model_with_it(switched, tiny_folder, kind):
    config = transformers.AutoConfig.from_pretrained(tiny_folder(kind))
    assert hasattr(config, EPSILON.get(kind, "layer_norm_eps"))
    setattr(config, EPSILON.get(kind, "layer_norm_eps"), 0.3)
    model = transformers.AutoModel.from_pretrained(tiny_folder(kind), config=config).eval()
    backbone, own = switched(kind, layer_norm_eps=0.3), switched(kind)
    given = text(backbone)
    half = given.decoder or given
    more = {"decoder_input_ids": half.ids} if given.decoder else {}
    expected = model(given.ids, attention_mask=given.mask.long(), **more).last_hidden_state
    given = replace(given, hidden_at=every(half.mask))
    ours = backbone.forward(given).hidden
    torch.testing.assert_close(ours, expected[half.mask], atol=2e-5, rtol=1e-5)
    assert (own.forward(given).hidden - ours).abs().max() > 1e-2


def test_glm_has_the_epsilon_in_every_norm(switched):
    norms = [
        m for m in switched("blocklm", layer_norm_eps=0.3).model.modules() if hasattr(m, "eps")
    ]
    assert norms and all(norm.eps == 0.3 for norm in norms)


def test_what_was_learned_with_another_epsilon_is_bound_to_it(tiny_folder):
    """Another epsilon is another function; dropout is not."""
    folder = str(tiny_folder("bert"))
    plain = PaperBackbone(name="x", path=folder).weights
    assert PaperBackbone(name="x", path=folder, dropout=0.5).weights == plain
    found = [
        PaperBackbone(name="x", path=folder, layer_norm_eps=eps).weights
        for eps in (1e-2, 0.01, 1e-3)
    ]
    assert found == [f"{plain}~eps0.01", f"{plain}~eps0.01", f"{plain}~eps0.001"]


@pytest.mark.parametrize(
    ("kind", "option", "value", "told"),
    [
        ("t5", "attention_dropout", 0.2, "backbone.dropout, backbone.layer_norm_eps."),
        ("llama", "dropout", 0.2, "backbone.attention_dropout, backbone.layer_norm_eps."),
        ("megatron", "layer_norm_eps", 0.2, "backbone.dropout, backbone.attention_dropout."),
        ("bert", "dropout", 1.0, "use"),
        ("bert", "dropout", -0.1, "use"),
        ("bert", "attention_dropout", float("nan"), "use"),
        ("bert", "layer_norm_eps", 0.0, "use"),
        ("bert", "layer_norm_eps", float("inf"), "use"),
    ],
)
def test_an_option_that_the_model_lacks_or_out_of_range_is_refused(
    tiny_folder, kind, option, value, told
):
    """With the options that it has, or the range."""
    lacks = rf"{option}=0.2: .* no such option. Allowed: {told}"
    with pytest.raises(
        UserError, match=lacks if told != "use" else f"backbone.{option} is {value}; use"
    ):
        PaperBackbone(name="x", path=str(tiny_folder(kind)), **{option: value})


@pytest.mark.parametrize("prefix", ["", "+", "++", "~"])
def test_the_sizes_of_a_model_are_no_option(prefix):
    typed = f"{prefix}backbone.config.dropout_rate=0.0"
    with pytest.raises(UserError, match=r"not an option. Type backbone.dropout="):
        compose_run([typed])


def test_null_keeps_the_run_id_and_a_value_changes_it():
    assert names_of("backbone.dropout=null") == names_of()
    assert names_of("backbone.dropout=0.2")[1] != names_of()[1]
    assert names_of("backbone.layer_norm_eps=1e-2")[1] != names_of()[1]
