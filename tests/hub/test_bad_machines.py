"""Bad machines, the hub's part: each has a clear line, and nothing half-written is left."""

import shutil
from collections import namedtuple
from pathlib import Path

import pytest
from huggingface_hub import constants

from ptrun.backbone import tokenizers
from ptrun.errors import UserError, explained
from tests.hub.conftest import MODEL, fetch, model, model_files
from tests.hub.server import Fault
from tests.hub.shapes import PICKLE, TENSORS, bert, t5

T5, OWN = "google/t5-v1_1-small", "someone/own"
ONLINE = "HF_HUB_OFFLINE=0"
Usage = namedtuple("Usage", "total used free")
SHARDS = [f"model-{i:05d}-of-00003.safetensors" for i in (1, 2, 3)]


@pytest.fixture(autouse=True)
def here(hub, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PTRUN_ALLOW_BIN", "false")


def check(folder: Path, *parts, name=MODEL):
    """Fetch a model: one error of a few lines says these parts, and nothing new is left."""
    before = set(folder.iterdir())
    with pytest.raises((UserError, OSError)) as caught:
        fetch(model(name), check=needed)
    told = explained(caught.value) or caught.value
    assert isinstance(told, UserError)
    text = str(told)
    for part in parts:
        assert part in text, text
    assert 1 <= len(text.splitlines()) <= 3 and "Traceback" not in text and "refs/pr" not in text
    assert all(len(line) < 500 for line in text.splitlines())
    assert set(folder.iterdir()) <= before | {folder / "cache"}
    assert not [*(folder / "cache").rglob("*.partial")] and not list(folder.rglob("harmed"))
    assert not list((folder / "cache" / "ptrun").rglob("*.safetensors"))


def needed(folder: Path) -> None:
    tokenizers.check_packages(folder, "t5" if (folder / "spiece.model").is_file() else "bert")


def shards(*absent):
    """Return BERT in three shards, as the hub lists them."""
    files = {name: content for name, content in model_files().items() if name != TENSORS}
    return files | {name: model_files()[TENSORS] for name in SHARDS if name not in absent}


@pytest.mark.parametrize("lacks", ["the weights", "config.json", SHARDS[1]])
@pytest.mark.parametrize("is_off", [True, False])
def test_what_the_cache_lacks_is_named_where_the_hub_is_off(hub, offline, tmp_path, lacks, is_off):
    hub.push("models", MODEL, shards() if lacks in SHARDS else model_files())
    fetch(model(MODEL))
    (model(MODEL).snapshot / {"the weights": TENSORS}.get(lacks, lacks)).unlink()
    if is_off:
        offline()
    hub.faults = [Fault(".", status=500)]
    told = [ONLINE] if is_off else ["the download failed (", "again later"]
    check(tmp_path, f"does not hold {lacks}", *told)


PUSHED = {  # what a repository has, and what the line says
    "a portal's page": (T5, {PICKLE: b"<!DOCTYPE html>log in"}, [PICKLE, "not a file of tensors"]),
    "a pointer": (T5, {PICKLE: b"version https://git-lfs.github.com/spec/v1\n"}, [PICKLE, "LFS"]),
    "a hostile pickle": (
        *(T5, {PICKLE: b"\x80\x02cos\nmkdir\n(X\x06\x00\x00\x00harmedtR."}),
        [PICKLE, "holds os.mkdir", "backbone.revision"],
    ),
    "a shard less": (OWN, shards(SHARDS[2]), [SHARDS[2], "backbone.revision"]),
}


@pytest.mark.parametrize("kind", PUSHED)
def test_what_is_wrong_with_a_repository_is_named(hub, tmp_path, kind):
    name, changed, parts = PUSHED[kind]
    files = t5(with_json=False) if name == T5 else {"config.json": bert()["config.json"]}
    hub.push("models", name, files | changed)
    check(tmp_path, *parts, name=name)


def test_a_mirror_that_is_off_or_a_portal(hub, monkeypatch, tmp_path):
    hub.faults = [Fault("GET /api", action="answer", code='"<html>log in</html>"')]
    check(tmp_path, "cannot be read", "HF_ENDPOINT is http")
    dead = "http://127.0.0.1:9"
    monkeypatch.setattr(constants, "ENDPOINT", dead)
    check(tmp_path, "the download failed (", f"HTTPS_PROXY, HF_ENDPOINT={dead}")


def test_a_full_disk(hub, monkeypatch, tmp_path):
    hub.push("models", T5, t5(with_json=False))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(2 * 10**9, 10**9, 2**20))
    check(tmp_path, "GB are needed there", "HF_HOME=FOLDER", name=T5)


def test_a_file_as_cache(hub, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(constants, "HF_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "file" / "hub"))
    check(tmp_path, "cannot be used", "Not a directory", "HF_HOME=FOLDER")


@pytest.mark.parametrize(("module", "package"), [("sentencepiece",) * 2, ("google", "protobuf")])
def test_a_package_that_is_missing(hub, monkeypatch, tmp_path, module, package):
    hub.push("models", T5, t5(with_json=False))
    find_spec = tokenizers.find_spec
    monkeypatch.setattr(tokenizers, "find_spec", lambda n: None if n == module else find_spec(n))
    check(tmp_path, f"needs the package {package}", "pip install", name=T5)
