"""Every backbone of conf/backbone loads from a repository of the shape that its own one has."""

import io
import json
import logging
import socket

import pytest
import torch
import yaml
from safetensors.torch import load

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.config.paths import conf_dir
from ptrun.errors import UserError
from ptrun.pattern.pattern import read_pvp
from ptrun.readout.label_words import LabelWords
from ptrun.readout.verbalizer import VerbalizerReading
from ptrun.types import Example
from tests.hub.shapes import NOISE, PICKLE, SHAPES, TENSORS, dump, shape_of
from tests.small_runs import sst2
from tests.tiers import tiered

NODES = {
    file.stem: {key: own for key, own in node.items() if not key.startswith("_")}
    for file in sorted((conf_dir() / "backbone").glob("*.yaml"))
    if (node := yaml.safe_load(file.read_text("utf-8"))).get("hub")
    and "# Unseen:" not in file.read_text("utf-8")  # the shape of its repository is not known
}
PRESETS = list(NODES)
CORE = ("albert_xxlarge_v2", "bert_base_cased", "deberta_xlarge", "electra_base", "gpt2")
CORE += ("minilm_l6", "mt5_small", "roberta_base", "roberta_large_mnli", "smollm2_135m")
CORE += ("t5_base_lm_adapt", "t5_v1_1_base")


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Refuse every connection but those to this machine."""
    connect = socket.socket.connect

    def local(own, address):
        assert address[0] in ("127.0.0.1", "localhost", "::1"), address
        return connect(own, address)

    monkeypatch.setattr(socket.socket, "connect", local)


def serve(hub, preset, **changed):
    """Put the repository of a preset on the hub; return the backbone, whose sizes are tiny."""
    files = SHAPES[shape_of(preset)]() | changed
    hub.push("models", NODES[preset]["hub"], files)
    own = {"config": json.loads(files["config.json"]), "parameters": None}
    return PretrainedBackbone(**NODES[preset] | own), files


def stored(files):
    """Return the values of the tensors of a repository, as float32."""
    whole = torch.load(io.BytesIO(files[PICKLE])) if PICKLE in files else load(files[TENSORS])
    return {tensor.float().numpy().tobytes() for tensor in whole.values()}


@pytest.mark.parametrize("preset", tiered(PRESETS, CORE.__contains__))
def test_a_preset_loads_from_its_repository(hub, preset, caplog):
    caplog.set_level(logging.INFO, "ptrun")
    backbone, files = serve(hub, preset)
    backbone.load()
    assert backbone.commit == hub.repos["models", backbone.hub].refs["main"]
    assert backbone.has_head is (preset not in ("minilm_l6", "roberta_large_mnli"))
    heads = () if backbone.has_head else ("cls.", "lm_head.")
    own = {n: one for n, one in backbone.model.named_parameters() if not n.startswith(heads)}
    drawn = {name for name in own if own[name].numpy().tobytes() not in stored(files)}
    assert len(own) >= 20 and all(name.startswith("pooler.") for name in drawn)
    assert len(backbone.tokenizer()("a film")["input_ids"]) > 1
    sent = {one.line.rpartition("/")[2] for one in hub.requests if one.sent}
    assert not sent & NOISE.keys() and "bpe_encoder.bin" not in sent
    assert (TENSORS in sent) is (TENSORS in files) is not (PICKLE in sent)
    assert ("converted once" in caplog.text) is (PICKLE in sent)
    again = PretrainedBackbone(**NODES[preset] | {"config": backbone.config, "parameters": None})
    hub.requests.clear()
    again.load()
    assert again.folder == backbone.folder and not any(one.sent for one in hub.requests)


def test_the_shapes_are_those_of_31_presets_of_which_18_have_pickles_alone():
    pickles = [name for name in PRESETS if TENSORS not in SHAPES[shape_of(name)]()]
    assert (len(PRESETS), len(pickles)) == (31, 18)
    assert {shape_of(name) for name in CORE} == set(SHAPES)


WORDS = {"negative": ["bad"], "positive": ["good"]}
PATTERN = "{~sentence}. {mask}"


@pytest.mark.parametrize("pattern", [PATTERN, "{mask} {~sentence}"])
def test_mt5_reads_its_answer_at_its_own_sentinel(hub, tmp_path, pattern):
    backbone, _ = serve(hub, "mt5_small")
    pvp = read_pvp("own", {"pattern": pattern, "words": WORDS, "rule": "first"})
    reader = LabelWords(backbone, sst2(tmp_path, PATTERN), pvp, VerbalizerReading())
    row = reader.row(reader.pieces(Example("0", {"sentence": "a film"}, "bad")), 60)
    tokens = backbone.tokenizer().convert_ids_to_tokens
    assert tokens(row.decoder) == ["<pad>", "▁<extra_id_0>"]
    assert tokens(row.ids).count("▁<extra_id_0>") == 1


def test_an_encoder_decoder_without_a_sentinel_is_refused(hub, tmp_path):
    settings = {"tokenizer_class": "T5Tokenizer", "extra_ids": 0, "additional_special_tokens": None}
    backbone, _ = serve(hub, "t5_v1_1_small", **{"tokenizer_config.json": dump(settings)})
    pvp = read_pvp("own", {"pattern": PATTERN, "words": WORDS, "rule": "first"})
    with pytest.raises(UserError, match=r"no sentinel such as <extra_id_0>.*\n.*sentinel=false"):
        _ = LabelWords(backbone, sst2(tmp_path, PATTERN), pvp, VerbalizerReading()).encoder
