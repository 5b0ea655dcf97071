"""A model of the hub is downloaded and loaded, or one sentence says why not."""

import pytest
from huggingface_hub import constants

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from tests.hub.conftest import MODEL, fetch, model, model_files, refused
from tests.hub.faults import FAULTS, break_, check
from tests.hub.server import Fault

TENSORS = "model.safetensors"


def test_a_model_is_loaded_by_its_id(hub):
    commit = hub.repos["models", MODEL].refs["main"]
    config = {"model_type": "bert"}
    backbone = PretrainedBackbone(name="x", hub=MODEL, revision="main", config=config)
    assert backbone.commit is None
    backbone.load()
    assert backbone.commit == commit and backbone.weights == f"{MODEL}@main"
    assert backbone.folder.name == commit
    shipped = PretrainedBackbone(name="pocket_bert", shipped="pocket_bert")
    shipped.load()
    own, other = (dict(one.model.named_parameters()) for one in (backbone, shipped))
    stored = [name for name in own if not name.startswith("pooler")]  # the files have no pooler
    assert len(stored) > 60 and all(own[name].equal(other[name]) for name in stored)


@pytest.mark.parametrize("named", ["commit", "branch", "tag", "refs/pr/1"])
def test_a_pinned_revision_is_the_one_that_is_downloaded(hub, named):
    old = hub.repos["models", MODEL].refs["main"]
    hub.repos["models", MODEL].refs |= {"branch": old, "tag": old, "refs/pr/1": old}
    hub.push("models", MODEL, model_files(**{"config.json": b"{}"}))
    pinned = model(revision=old if named == "commit" else named)
    assert fetch(pinned).name == old and pinned.commit == old


def test_a_cut_download_goes_on_where_it_was_cut(hub, monkeypatch):
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 2**16)
    hub.faults = [Fault(f"GET /store.*{TENSORS}", action="cut", bytes=1_000_000, times=1)]
    folder = fetch(model())
    whole = model_files()[TENSORS]
    assert (folder / TENSORS).read_bytes() == whole
    first, second = hub.files_sent(TENSORS)
    assert (first.start, first.sent) == (0, 1_000_000)
    assert second.start + second.sent == len(whole)
    assert first.sent - 2**16 < second.start <= first.sent


def test_a_second_download_takes_only_the_files_that_are_missing(hub):
    """huggingface_hub 2.4 keeps complete files; the bytes of a file that was cut are lost."""
    hub.faults = [Fault(f"GET .*{TENSORS}", status=500)]
    check(refused(model()), MODEL, "the download failed (", "complete files are kept")
    hub.faults.clear()
    hub.requests.clear()
    folder = fetch(model())
    assert {one.line.rsplit("/")[-1] for one in hub.requests if one.sent} == {TENSORS}
    assert (folder / TENSORS).read_bytes() == model_files()[TENSORS]


@pytest.mark.parametrize("name", FAULTS)
def test_a_failing_hub_is_one_sentence(hub, name):
    happened, remedy = break_(hub, name)
    check(refused(model()), MODEL, happened, remedy, "backbone.path=FOLDER")


@pytest.mark.parametrize("answer", ["[]", '{"id": "a/b", "sha": null}', "404"])
def test_an_answer_that_is_no_hub_s_names_the_address(hub, monkeypatch, answer):
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    fault = Fault(".", status=404) if answer == "404" else Fault(".", action="answer", code=answer)
    hub.faults = [fault]
    check(refused(model()), MODEL, "cannot be read", f"HF_ENDPOINT is {hub.endpoint}.")


@pytest.mark.parametrize("name", ["500", "silent", "403"])
def test_a_downloaded_model_is_used_if_the_hub_fails_later(hub, name, caplog):
    commit = fetch(model()).name
    break_(hub, name)
    again = model()
    assert fetch(again).name == commit and again.commit == commit and again.current is None
    assert f"the copy in the cache, commit {commit}, is used" in caplog.text


def test_a_gated_model_needs_the_right_token(hub, monkeypatch):
    hub.gated[MODEL] = "right"
    check(refused(model()), "(401); the owner of a gated model grants it", "`hf auth login`")
    monkeypatch.setenv("HF_TOKEN", "wrong")
    check(refused(model()), "(403); the owner of a gated model", "Ask for access")
    monkeypatch.setenv("HF_TOKEN", "right")
    assert fetch(model()).is_dir()


def test_offline_the_cache_is_used_without_a_request(hub, offline):
    commit = fetch(model()).name
    offline()
    assert fetch(model()).name == commit and not hub.requests
    assert fetch(model(recorded=commit)).name == commit


def test_a_model_without_weights_is_refused(hub):
    hub.push("models", MODEL, {"config.json": b"{}", "tf_model.h5": b"1", "bpe_encoder.bin": b"2"})
    text = refused(model())
    check(text, "no model.safetensors and no pytorch_model.bin", "revision main", "tf_model.h5")
    assert not any(one.sent for one in hub.requests)


@pytest.mark.slow
@pytest.mark.parametrize("request_", ["GET .*/tree/", f"GET /store.*{TENSORS}"])
def test_a_hub_that_falls_silent_is_asked_six_times_and_then_refused(hub, request_):
    """The library repeats these requests itself; each ends after a second here."""
    hub.faults = [Fault(request_, action="stall")]
    with pytest.raises(UserError) as caught:
        fetch(model())
    check(str(caught.value), MODEL, "timed out", "HF_HUB_DOWNLOAD_TIMEOUT=1")
    assert hub.faults[0].times == 10**6 - 6


@pytest.mark.parametrize("cut", [0, 7, 100_000])
def test_a_file_that_was_cut_on_the_disk_is_named_and_downloaded_again(hub, caplog, cut):
    file = fetch(model()) / TENSORS
    blob, whole = file.resolve(), file.read_bytes()
    blob.write_bytes(whole[:cut])
    hub.requests.clear()
    assert (fetch(model()) / TENSORS).read_bytes() == whole
    assert f"{blob}: cut, {cut} of {len(whole)} bytes; it is downloaded again" in caplog.text
    assert {one.line.rsplit("/")[-1] for one in hub.requests if one.sent} == {TENSORS}


def test_a_token_does_not_follow_the_redirect_to_another_host(hub, monkeypatch):
    hub.gated[MODEL] = "secret"
    monkeypatch.setenv("HF_TOKEN", "secret")
    fetch(model())
    asked = [one for one in hub.requests if not one.sent]
    stored = [one for one in asked if "/store/" in one.line]
    assert stored and not any(one.token for one in stored)
    # Not all requests: the libraries may send telemetry from a thread, without a token.
    assert {one.token for one in asked if MODEL in one.line} == {"secret"}
