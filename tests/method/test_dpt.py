"""DPT: what is learned and counted, and reserved tokens that begin as the class words."""

import pytest
import torch

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.method.dpt import DPT
from tests import small_runs
from tests.readings import method_of, reading
from tests.small_runs import engine, member, sst2

OFFICIAL = "{~sentence} || plot: {words|commas},"


@pytest.fixture(scope="session")
def reserving(tiny_folder, tmp_path_factory):
    """Return a function that loads a tiny ELECTRA whose vocabulary has eight reserved tokens."""
    folder = tmp_path_factory.mktemp("reserving") / "electra"
    small_runs.reserving(tiny_folder("electra"), folder, first=102)

    def load():
        backbone = PretrainedBackbone(name="reserving", path=str(folder), dtype="fp32")
        backbone.load()
        return backbone

    return load


def placed(backbone, data, reserved=False, **keys):
    own = reading("class_words", **keys)
    method = DPT(backbone, data, own, reserved=reserved)
    fit = engine(backbone, 10_000)
    fit.place([method])
    return method, fit


@torch.no_grad()
def odds(method, fit, examples):
    batch = fit._collate(method.encode(examples))
    return method.classes.odds(method.backbone.forward(method.inputs(batch)), batch)


@pytest.mark.parametrize(
    ("name", "size"), [("electra_base", 109_483_009), ("electra_large", 335_142_913)]
)
@pytest.mark.parametrize(("bias", "added"), [(False, 0), (True, 6)])
def test_all_of_electra_is_learned_and_nothing_or_a_number_a_class_is_added(
    name, size, bias, added
):
    composed = compose_run([f"backbone={name}", "method=dpt", "task=trec", f"readout.bias={bias}"])
    counts = method_of(composed).learned_parameters()
    assert counts == {"prompt": 0, "head": added, "backbone": size, "total": size + added}
    assert composed.config["train"]["lr"] == 2e-5


def test_reserved_tokens_begin_as_the_words_they_stand_for(reserving, data_dir):
    data = sst2(data_dir, OFFICIAL)
    plain, fit = placed(reserving(), data)
    expected = odds(plain, fit, data.load("train"))
    method, fit = placed(reserving(), data, reserved=True)
    row = method.encode(data.load("train"))[0].rows[0]
    names = method.backbone.tokenizer().convert_ids_to_tokens(row.ids)
    assert names[-5:] == [*(f"[unused{102 + i}]" for i in range(4)), "[SEP]"]
    assert torch.equal(odds(method, fit, data.load("train")), expected)
    assert method.learned_parameters() == plain.learned_parameters()


def test_reserved_tokens_learn_and_the_words_themselves_stay(reserving, data_dir):
    data = sst2(data_dir, OFFICIAL)
    method, _ = placed(reserving(), data, reserved=True)
    table = method.backbone.model.get_input_embeddings().weight
    words = table[method.classes.written].detach().clone()
    one = member(lambda b, t: method, method.backbone, data, max_steps=3)
    engine(method.backbone, 10_000).fit([one])
    moved = (table[method.classes.stand_ins] != words).any(dim=1)
    assert moved.tolist() == [True] * 4
    read = {i for f in one.features for i in f.rows[0].ids}
    untold = [k for k, i in enumerate(method.classes.written) if i not in read]
    assert untold, "a class word that no text has"
    assert torch.equal(table[method.classes.written][untold], words[untold])


@pytest.mark.parametrize("first", ["placed", "loaded"])
def test_learned_reserved_tokens_are_kept(reserving, data_dir, first):
    """Whichever comes first: being placed must not copy the words over what was learned."""
    data = sst2(data_dir, OFFICIAL)
    method, fit = placed(reserving(), data, reserved=True, bias=True)
    fit.fit([member(lambda b, t: method, method.backbone, data, max_steps=3)])
    exported = {name: tensor.clone() for name, tensor in method.exported().items()}
    fresh = DPT(reserving(), data, reading("class_words", bias=True), reserved=True)
    again = engine(fresh.backbone, 10_000)
    if first == "placed":
        again.place([fresh])
    fresh.load_exported(exported)
    again.place([fresh])
    examples = data.load("test")
    assert torch.equal(odds(fresh, again, examples), odds(method, fit, examples))


def test_too_few_reserved_tokens_are_refused(tiny, data_dir):
    with pytest.raises(UserError, match="need the 4 reserved tokens from"):
        placed(tiny("electra"), sst2(data_dir, OFFICIAL), reserved=True)


def test_a_text_after_reserved_class_words_is_refused(reserving, data_dir):
    data = sst2(data_dir, "{words|commas}: {~sentence}")
    with pytest.raises(UserError, match=r"\{sentence\} comes after the class words"):
        DPT(reserving(), data, reserved=True)
    DPT(reserving(), data)
