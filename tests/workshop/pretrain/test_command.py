"""`python -m workshop.pretrain` on a small corpus: folders that load, repeat, or are refused."""

import gzip
import json
from functools import partial
from itertools import islice

import pytest
import torch
from safetensors.torch import load_file

from ptrun.errors import UserError
from tests.backbone.inputs import text
from tests.families import PaperBackbone
from tests.tiers import tiered
from workshop.pocket.corpus import documents
from workshop.pretrain.__main__ import main, recipes
from workshop.pretrain.training import Pretraining

RECIPES = [name for name in recipes() if name.startswith("pocket")]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    for split, count in (("train", 200), ("validation", 40)):
        with gzip.open(folder / f"{split}.jsonl.gz", "wt") as file:
            for sentences in islice(documents(split), count):
                file.write(json.dumps({"doc": " ".join(sentences)}) + "\n")
    return folder


def pretrain(name, corpus, out, *more):
    main([f"backbone={name}", f"corpus={corpus}", f"out={out}", "steps=4", "log_every=2", *more])
    return json.loads((out / "result.json").read_text())


@pytest.mark.parametrize("name", tiered(RECIPES, lambda name: False))
def test_a_recipe_makes_a_backbone_that_loads(corpus, tmp_path, name, capsys):
    more = ["vocabulary=900"]
    if name == "pocket_electra":
        pretrain("pocket_bert", corpus, tmp_path / "bert", *more)
        more.append(f"generator={tmp_path / 'bert'}")
    result = pretrain(name, corpus, tmp_path / "made", *more)
    assert result["model"] == name and result["world_version"] is None
    assert str(tmp_path) not in (tmp_path / "made" / "result.json").read_text()
    backbone = PaperBackbone(name="made", path=str(tmp_path / "made"))
    backbone.load()
    backbone.model.pooler = None  # ours, not the checkpoint's
    assert sum(p.numel() for p in backbone.model.parameters()) == result["parameters"]
    assert backbone.has_head and backbone.forward(text(backbone)).logits.isfinite().all()
    tokenizer = backbone.tokenizer(words=True)
    encoded = tokenizer(["Anna", "met", "Bo."], is_split_into_words=True)
    assert set(encoded.word_ids()) - {None} == {0, 1, 2}
    assert tokenizer.unk_token_id is None or tokenizer.unk_token_id not in encoded["input_ids"]


@pytest.mark.slow
def test_a_pretrained_encoder_goes_on_and_becomes_an_electra(corpus, tmp_path):
    """The recipes of MiniLM, on a tiny model: sizes, weights and tokenizer are the folder's."""
    first, bert, electra = (tmp_path / name for name in ("first", "bert", "electra"))
    pretrain("pocket_bert", corpus, first, "vocabulary=900")
    still = "rate=1e-9"
    pretrain("minilm_bert", corpus, bert, f"initial={first}", still)
    sizes = json.loads((first / "config.json").read_text())
    made = json.loads((bert / "config.json").read_text())
    kept = ("hidden_size", "num_hidden_layers", "vocab_size", "intermediate_size")
    assert [made[key] for key in kept] == [sizes[key] for key in kept]
    same = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    sizes["embedding_size"] = sizes["hidden_size"]
    changed = [f"model.{key}={sizes[key]}" for key in (*same, "embedding_size")]
    changed += [f"model.max_position_embeddings={sizes['max_position_embeddings']}"]
    result = pretrain("minilm_electra", corpus, electra, f"generator={bert}", still, *changed)
    assert result["plan"]["generator"] == "bert" and "auc" in result["validation"]
    backbones = [PaperBackbone(name="made", path=str(own)) for own in (first, electra)]
    for backbone in backbones:
        backbone.load()
    states = [backbone.forward(text(backbone)).hidden for backbone in backbones]
    torch.testing.assert_close(*states, atol=1e-4, rtol=1e-3)
    again = tmp_path / "again"
    goes_on = (f"generator={bert}", f"initial={electra}", still)
    pretrain("minilm_electra", corpus, again, *goes_on, *changed)
    weights = (load_file(own / "model.safetensors") for own in (electra, again))
    torch.testing.assert_close(*weights, atol=1e-6, rtol=0)
    encoder = tmp_path / "encoder"  # of another type than the model that starts from it
    pretrain(
        "marco_electra", corpus, encoder, f"generator={bert}", f"initial={first}", still, *changed
    )
    backbones[1] = PaperBackbone(name="made", path=str(encoder))
    backbones[1].load()
    states = [backbone.forward(text(backbone)).hidden for backbone in backbones]
    torch.testing.assert_close(*states, atol=1e-4, rtol=1e-3)
    assert (first / "tokenizer.json").read_text() == (electra / "tokenizer.json").read_text()


def interrupted(line):
    """Return a method that writes the first line of a log alone."""

    def written(self, step, *figures):
        if step > 2:
            raise KeyboardInterrupt
        return line(self, step, *figures)

    return written


@pytest.mark.slow
def test_the_same_command_makes_the_same_weights(corpus, tmp_path, monkeypatch):
    """T5's, with an output matrix of its own and without scaling; the second is interrupted."""
    made = partial(pretrain, "pocket_t5", corpus)
    made(tmp_path / "one", "vocabulary=900")
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Pretraining, "_line", interrupted(Pretraining._line))
        made(tmp_path / "two", "vocabulary=900")
    with pytest.raises(UserError, match=r"two\.state is the state of another recipe"):
        made(tmp_path / "two", "vocabulary=900", "seed=1")
    (tmp_path / "longer.state").write_bytes((tmp_path / "two.state").read_bytes())
    longer = made(tmp_path / "longer", "vocabulary=900", "steps=6")
    made(tmp_path / "two", "vocabulary=900")
    assert not list(tmp_path.glob("*.state*"))
    one, two = ((tmp_path / n / "model.safetensors").read_bytes() for n in ("one", "two"))
    assert one == two
    logs = [(tmp_path / n / "train_log.csv").read_text().split() for n in ("two", "longer")]
    assert logs[0][1] == logs[1][1] and [len(log) for log in logs] == [3, 4]
    assert longer["plan"]["steps"] == 6
    backbone = PaperBackbone(name="two", path=str(tmp_path / "two"))
    backbone.load()
    assert not torch.equal(backbone.model.lm_head.weight, backbone.model.shared.weight)
    assert backbone.model.config.scale_decoder_outputs is False
