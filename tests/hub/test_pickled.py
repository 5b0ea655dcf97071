"""A model whose repository has only pickled weights is converted once, and trains."""

import json
import logging
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import yaml
from huggingface_hub import constants
from safetensors import safe_open

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.command import import_, run
from ptrun.config.components import without_permission
from ptrun.errors import UserError
from ptrun.hub import convert as plain
from ptrun.hub import download
from tests.hub.conftest import fetch, model, refused
from tests.hub.shapes import PICKLE, pickled, t5, tiny, words
from tests.hub.test_presets import NODES, serve

T5 = "google/t5-v1_1-small"


@pytest.fixture(autouse=True)
def said(caplog, monkeypatch):
    caplog.set_level(logging.INFO, "ptrun")
    monkeypatch.setenv("PTRUN_ALLOW_BIN", "false")  # what a test allows ends with it
    return caplog


def table(folder):
    """Return the dtypes of a folder's tensors."""
    dtypes = {}
    for file in folder.glob("*.safetensors"):
        with safe_open(file, "pt") as opened:
            dtypes |= {name: opened.get_slice(name).get_dtype() for name in opened.keys()}  # noqa: SIM118
    return dtypes


def foreign(hub, name="someone/bert", **files):
    config, state = tiny("bert", vocab_size=105, hidden_size=16, num_hidden_layers=1,
                         num_attention_heads=2, intermediate_size=24)  # fmt: skip
    hub.push("models", name, config | words() | (files or {PICKLE: pickled(state)}))
    return state


TYPED = ["backbone=mine", "task=pocket_sentiment", "method=prompt_tuning", "method.length=2"]
TYPED += ["train.max_steps=2", "train.batch_size=4", "hardware=cpu"]


def test_a_preset_trains_and_a_second_run_converts_nothing(hub, tmp_path, monkeypatch, said):
    monkeypatch.chdir(tmp_path)
    _, files = serve(hub, "t5_v1_1_small")
    node = NODES["t5_v1_1_small"] | {"config": json.loads(files["config.json"])}
    node |= {"name": "mine", "parameters": None, "dtype": "fp32"}
    node["_target_"] = "ptrun.backbone.pretrained.PretrainedBackbone"
    (tmp_path / "ptrun_conf" / "backbone").mkdir(parents=True)
    (tmp_path / "ptrun_conf" / "backbone" / "mine.yaml").write_text(yaml.safe_dump(node))
    run.main([*TYPED, "seed=1"])
    assert said.text.count("converted once, into") == 1
    (folder,) = download.place(model(T5)).glob("*/")
    commit = hub.repos["models", T5].refs["main"]
    assert folder.name == commit and constants.HF_HOME in str(folder)
    said.clear()
    hub.requests.clear()
    run.main([*TYPED, "seed=2"])
    assert "converted" not in said.text and not any(one.sent for one in hub.requests)
    results = [json.loads(one.read_text()) for one in (tmp_path / "outputs").rglob("result.json")]
    assert [one["manifest"]["backbone"]["commit"] for one in results] == [commit] * 2


def test_copies_are_dropped_and_the_first_name_is_kept(hub):
    serve(hub, "t5_v1_1_small")
    names = table(fetch(model(T5))).keys()
    assert {"shared.weight", "lm_head.weight"} <= names
    assert not {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"} & names


def test_the_dtype_of_each_tensor_is_kept(hub):
    serve(hub, "deberta_xlarge")
    folder = fetch(model(NODES["deberta_xlarge"]["hub"]))
    assert {*table(folder).values()} == {"F16"}
    beside = {file.name for file in folder.iterdir()}
    assert {"vocab.json", "merges.txt", "config.json"} <= beside and PICKLE not in beside


def test_shards_are_read_by_their_index(hub):
    hub.push("models", T5, t5(with_json=True, shards=3))
    folder = fetch(model(T5))
    whole = t5(with_json=True)
    hub.push("models", T5, whole)
    assert table(folder).keys() >= table(fetch(model(T5))).keys()


def test_large_models_are_written_in_several_files(tmp_path):
    state = {f"w{i}": torch.full((64,), float(i)) for i in range(6)}
    (tmp_path / PICKLE).write_bytes(pickled(state))
    (tmp_path / "config.json").write_text("{}")
    plain.convert_folder(tmp_path, tmp_path / "out", file_bytes=600)
    files = sorted((tmp_path / "out").glob("*.safetensors"))
    assert len(files) == 3
    read = {n: o.get_tensor(n) for f in files for o in [safe_open(f, "pt")] for n in o.keys()}  # noqa: SIM118
    assert all(read[name].equal(tensor) for name, tensor in state.items())


def test_an_id_that_is_no_preset_is_refused_with_the_line_to_type(hub):
    foreign(hub)
    text = refused(model("someone/bert"))
    assert "only pickled weights (.bin) at revision main" in text
    assert text.splitlines()[1] == "Type allow_bin=true to convert them once."
    assert "refs/pr" not in text and not hub.files_sent(PICKLE)


def test_the_user_allows_pickled_weights_of_another_id(hub):
    state = foreign(hub)
    assert without_permission(["seed=1", "allow_bin=true"]) == ["seed=1"]
    folder = fetch(model("someone/bert"))
    with safe_open(next(folder.glob("*.safetensors")), "pt") as opened:
        assert all(opened.get_tensor(name).equal(tensor) for name, tensor in state.items())
    without_permission(["allow_bin=false"])
    assert fetch(model("someone/bert")) == folder  # converted before
    with pytest.raises(UserError, match="allow_bin=yes: expected true or false"):
        without_permission(["allow_bin=yes"])


def test_presets_are_those_of_the_package_alone(hub, tmp_path, monkeypatch):
    (tmp_path / "ptrun_conf" / "backbone").mkdir(parents=True)
    (tmp_path / "ptrun_conf" / "backbone" / "mine.yaml").write_text("hub: someone/bert\n")
    monkeypatch.chdir(tmp_path)
    assert len(download.presets()) == 67 and T5 in download.presets()
    foreign(hub)
    assert "allow_bin=true" in refused(model("someone/bert"))


def test_two_processes_convert_once(hub):
    serve(hub, "t5_v1_1_small")
    folder, weights = download.snapshot(model(T5))
    calls, convert = [], plain.convert_folder

    def write(*places):
        calls.append(places)
        convert(*places)

    with ThreadPoolExecutor(2) as pool:
        given = (model(T5), folder, weights, write)
        done = [pool.submit(download.convert_once, *given) for _ in range(2)]
    assert len(calls) == 1 and done[0].result() == done[1].result()


def test_a_damaged_conversion_is_made_again(hub):
    serve(hub, "t5_v1_1_small")
    folder = fetch(model(T5))
    file = next(folder.glob("*.safetensors"))
    whole = file.read_bytes()
    file.write_bytes(whole[:-5])
    assert fetch(model(T5)) == folder and file.read_bytes() == whole


@pytest.mark.parametrize("name", ["../kept", "a/../../kept", ".."])
def test_a_name_that_leads_out_of_the_folder_finds_and_removes_nothing(hub, name):
    commit = "f" * 40
    kept = download.place(model(name)) / commit
    kept.mkdir(parents=True, exist_ok=True)
    (kept / "model.safetensors").write_bytes(b"cut")
    assert download.find(model(name), commit) is None and kept.is_dir()
    shutil.rmtree(kept)


def test_the_pickles_may_be_deleted_after_the_conversion(hub, offline):
    serve(hub, "t5_v1_1_small")
    folder = fetch(model(T5))
    shutil.rmtree(constants.HF_HUB_CACHE)
    hub.requests.clear()
    assert fetch(model(T5)) == folder and not any(o.sent for o in hub.requests)
    again = model(T5, hub.repos["models", T5].refs["main"])
    offline()
    assert fetch(again) == folder and again.commit == folder.name


def test_another_file_at_the_same_commit_has_another_hash_and_is_refused(hub):
    """The name of a blob in the cache is the hub's SHA-256 of it."""
    _, files = serve(hub, "t5_v1_1_small")
    _, (weights,) = download.snapshot(model(T5))
    blob = weights.resolve()
    blob.write_bytes(files[PICKLE][:-1] + b"x")
    text = refused(model(T5))
    assert str(weights) in text and "SHA-256" in text and "downloads this file again" in text
    assert not list(download.place(model(T5)).glob("*/")) and not blob.exists()
    assert fetch(model(T5)).is_dir()


def test_import_takes_an_id_and_a_folder_of_that_name_wins(hub, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    state = foreign(hub)
    import_.main(["hf", "someone/bert", "--out", "one", "--dtype", "bf16"])
    assert {*table(tmp_path / "one").values()} == {"BF16"}
    assert "1 layers, vocabulary 105" in capsys.readouterr().out
    (tmp_path / "someone" / "bert").mkdir(parents=True)
    with pytest.raises(UserError, match="someone/bert: no config"):
        import_.main(["hf", "someone/bert", "--out", "two"])
    (tmp_path / "someone" / "bert" / "config.json").write_text('{"vocab_size": 105}')
    (tmp_path / "someone" / "bert" / PICKLE).write_bytes(pickled(state, zipped=False))
    hub.requests.clear()
    import_.main(["hf", "someone/bert", "--out", "two"])
    assert table(tmp_path / "two").keys() == state.keys() and not hub.requests


def test_import_of_nothing_is_refused(hub, tmp_path):
    with pytest.raises(UserError, match="no such folder, and no hub id"):
        import_.main(["hf", "./nowhere", "--out", str(tmp_path / "x")])
    with pytest.raises(UserError, match="no such model"):
        import_.main(["hf", "someone/lost", "--out", str(tmp_path / "x")])
    assert not (tmp_path / "x").exists()


def test_an_imported_folder_is_a_backbone(hub, tmp_path):
    foreign(hub)
    import_.main(["hf", "someone/bert", "--out", str(tmp_path / "x")])
    backbone = PretrainedBackbone(name="x", path=str(tmp_path / "x"))
    backbone.load()
    assert backbone.has_head and backbone.tokenizer()("a film")["input_ids"]
