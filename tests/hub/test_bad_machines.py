"""Sixty bad machines, the hub's part: each has a clear line, and nothing half-written is left."""

import errno
import os
import shutil
from collections import namedtuple
from pathlib import Path

import pytest
from huggingface_hub import close_session, constants

from ptrun.backbone import tokenizers
from ptrun.errors import UserError, explained
from ptrun.hub import convert, download
from ptrun.hub.repository import model
from tests.hub.conftest import MODEL, fetch, model_files
from tests.hub.server import Fault
from tests.hub.shapes import NOISE, PICKLE, TENSORS, bert, t5

T5 = "google/t5-v1_1-small"
Usage = namedtuple("Usage", "total used free")
GIGA = 10**9


class Machine:
    """What a case may break."""

    def __init__(self, hub, patch, folder, offline):
        self.hub, self.patch, self.folder, self.offline = hub, patch, folder, offline
        self.name, self.revision, self.options = MODEL, "main", {}

    def push(self, name=T5, **changed):
        self.name = name
        files = t5(with_json=False) if name == T5 else bert()
        self.hub.push("models", name, {**files, **changed})

    def cached(self, name=MODEL):
        """Download a model, and return its folder in the cache."""
        self.name = name
        if name == T5:
            self.push()
        fetch(model(name, "main"))
        return model_folder(name)

    def fault(self, match, **given):
        self.hub.faults = [Fault(match, **given)]

    def free(self, nbytes):
        self.patch.setattr(shutil, "disk_usage", lambda _: Usage(2 * GIGA, GIGA, nbytes))

    def without(self, module):
        found = tokenizers.find_spec
        self.patch.setattr(tokenizers, "find_spec", lambda n: None if n == module else found(n))

    def proxy(self, url):
        for key in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            self.patch.setenv(key, url)
        for key in ("NO_PROXY", "no_proxy"):
            self.patch.delenv(key, raising=False)
        close_session()

    def mirror(self, url):
        self.patch.setenv("HF_ENDPOINT", url)
        self.patch.setattr(constants, "ENDPOINT", url)


def model_folder(name):
    repository = model(name, "main")
    return repository.snapshot


def cut(file, size=None):
    blob = file.resolve()
    blob.write_bytes(blob.read_bytes()[: size if size is not None else -7])


def shards(*absent):
    """Return BERT in three shards, as the hub lists them."""
    names = [f"model-{i:05d}-of-00003.safetensors" for i in (1, 2, 3)]
    files = {name: own for name, own in model_files().items() if name != TENSORS}
    return files | {n: model_files()[TENSORS] for n in names if n not in absent}


def nothing(m):
    m.offline()


def only_a_tokenizer(m):
    (m.cached() / TENSORS).unlink()
    m.offline()


def no_configuration(m):
    (m.cached() / "config.json").unlink()
    m.offline()


def a_shard_less(m):
    m.hub.push("models", MODEL, shards())
    (m.cached() / "model-00002-of-00003.safetensors").unlink()
    m.offline()


def a_cut_blob(m):
    cut(m.cached() / TENSORS)
    m.offline()


def a_cut_pickle(m):
    folder = m.cached(T5)
    shutil.rmtree(download.place(model(T5, "main")))
    cut(folder / PICKLE)
    m.offline()


def another_blob(m):
    folder = m.cached(T5)
    shutil.rmtree(download.place(model(T5, "main")))
    blob = (folder / PICKLE).resolve()
    blob.write_bytes(blob.read_bytes()[:-1] + b"?")


def half_and_500(m):
    (m.cached() / TENSORS).unlink()
    m.fault(".", status=500)


def gated(m, token=None):
    m.hub.gated[MODEL] = "right"
    if token:
        m.patch.setenv("HF_TOKEN", token)


def renamed(m):
    m.name = "someone/renamed"


def no_revision(m):
    m.revision = "v9"


def dead_proxy(m):
    m.proxy("http://127.0.0.1:9")


def dead_mirror(m):
    m.mirror("http://127.0.0.1:9")


def page_of_a_portal(m):
    m.mirror(m.hub.endpoint)
    m.fault("GET /api", action="answer", code='"<html>log in</html>"')


def a_portal_s_page_as_weights(m):
    m.push(**{PICKLE: b"<!DOCTYPE html><html>log in</html>"})


def a_pointer_as_weights(m):
    m.push(**{PICKLE: b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n"})


def lost_half_way(m):
    m.fault(f"GET /store.*{TENSORS}", action="close")


def cut_each_time(m):
    m.patch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 2**10)
    m.fault(f"GET /store.*{TENSORS}", action="cut", bytes=10)


def full_before_the_download(m):
    m.push()
    m.free(1000)


def room_for_the_download_alone(m):
    m.push()
    size = len(t5(with_json=False)[PICKLE])
    m.free(int(size * 1.5) + 2**27)


def full_before_the_conversion(m):
    folder = m.cached(T5)
    shutil.rmtree(download.place(model(T5, "main")))
    assert (folder / PICKLE).is_file()
    m.free(1000)


def full_while_converting(m):
    m.push()

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    m.patch.setattr(convert, "write_model", full)


def a_file_as_cache(m):
    m.push()
    place = m.folder / "file"
    place.write_text("")
    m.patch.setattr(constants, "HF_HOME", str(place))
    m.patch.setattr(constants, "HF_HUB_CACHE", str(place / "hub"))


def no_sentencepiece(m):
    m.push()
    m.without("sentencepiece")


def no_protobuf(m):
    m.push()
    m.without("google")


def hostile(m):
    m.push(**{PICKLE: b"\x80\x02cos\nmkdir\n(X\x06\x00\x00\x00harmedtR."})


def foreign(m):
    m.push("someone/own", **{PICKLE: t5(with_json=False)[PICKLE]})
    files = {n: own for n, own in bert().items() if n != TENSORS}
    m.hub.push("models", "someone/own", files)


def other_formats_alone(m):
    m.hub.push("models", MODEL, {"config.json": b"{}", **NOISE})


def a_shard_that_the_hub_lacks(m):
    m.hub.push("models", MODEL, shards("model-00003-of-00003.safetensors"))


def dead_xet(m):
    m.patch.setattr(constants, "HF_HUB_DISABLE_XET", False)
    m.fault("xet-read-token", status=500)


def fault(match, **given):
    return lambda m: m.fault(match, **given)


ONLINE = "HF_HUB_OFFLINE=0"
CASES = {  # what is broken: what the line says, in parts
    "offline, nothing cached": (nothing, ["does not hold it", ONLINE]),
    "offline, a tokenizer alone": (only_a_tokenizer, ["does not hold the weights", ONLINE]),
    "offline, no config.json": (no_configuration, ["does not hold config.json", ONLINE]),
    "offline, a shard less": (
        a_shard_less,
        ["does not hold model-00002-of-00003.safetensors", ONLINE],
    ),
    "offline, a cut blob": (a_cut_blob, ["does not hold a whole ", "/blobs/", ONLINE]),
    "offline, a cut pickle": (a_cut_pickle, [PICKLE, "SHA-256", "downloads this file again"]),
    "another blob": (another_blob, [PICKLE, "SHA-256", "downloads this file again"]),
    "half a cache, a hub with 500": (
        half_and_500,
        ["does not hold the weights", "error of its own (500)", "again later"],
    ),
    "gated": (gated, ["is gated", "(401)", "hf auth login"]),
    "gated, another token": (lambda m: gated(m, "wrong"), ["is gated", "(403)", "Ask for access"]),
    "gated files of an open list": (
        fault("/resolve/", status=401, code="GatedRepo"),
        ["is gated", "(401)", "hf auth login"],
    ),
    "renamed or private": (renamed, ["no such model, or it is private", "Check backbone.hub"]),
    "no such revision": (no_revision, ["no revision v9", "backbone.revision=main"]),
    "too many requests": (fault(".", status=429), ["too many requests from here (429)", "later"]),
    "a hub with 503": (fault(".", status=503), ["error of its own (503)", "again later"]),
    "a hub that closes": (fault(".", action="close"), ["disconnected", "again later"]),
    "a hub that is silent": (fault(".", action="stall"), ["nothing for 1 s", "DOWNLOAD_TIMEOUT"]),
    "a proxy that refuses access": (fault(".", status=407), ["407", "HTTPS_PROXY"]),
    "a proxy that is off": (dead_proxy, ["proxy http://127.0.0.1:9", "HTTPS_PROXY"]),
    "a mirror that is off": (dead_mirror, ["HF_ENDPOINT is http://127.0.0.1:9"]),
    "the page of a portal": (page_of_a_portal, ["cannot be read", "HF_ENDPOINT is http"]),
    "a portal's page as weights": (a_portal_s_page_as_weights, [PICKLE, "not a file of tensors"]),
    "a Git LFS pointer as weights": (a_pointer_as_weights, [PICKLE, "Git LFS pointer"]),
    "a download that is cut": (cut_each_time, ["the download failed", "again later"]),
    "full before the download": (
        full_before_the_download,
        ["GB free; needed are", "to download", "to convert", "HF_HOME=FOLDER"],
    ),
    "room for the download alone": (
        room_for_the_download_alone,
        ["GB free; needed are", "HF_HOME=FOLDER"],
    ),
    "full before the conversion": (full_before_the_conversion, ["GB free", "HF_HOME=FOLDER"]),
    "full while converting": (full_while_converting, ["No space left on", "HF_HOME=FOLDER"]),
    "a file as cache": (a_file_as_cache, ["cannot be used", "Not a directory", "HF_HOME=FOLDER"]),
    "no sentencepiece": (no_sentencepiece, ["needs the package sentencepiece", "pip install"]),
    "no protobuf": (no_protobuf, ["needs the package protobuf", "pip install"]),
    "a hostile pickle": (hostile, [PICKLE, "holds os.mkdir", "backbone.revision"]),
    "pickles of another id": (foreign, ["someone/own", "Type allow_bin=true"]),
    "other formats alone": (other_formats_alone, ["no model.safetensors", "flax_model.msgpack"]),
    "a shard that the hub lacks": (
        a_shard_that_the_hub_lacks,
        ["model-00003-of-00003.safetensors", "backbone.revision"],
    ),
    "xet that fails": (dead_xet, ["error of its own (500)", "HF_HUB_DISABLE_XET=1"]),
}
SLOW = ("a hub that is silent", "a download that is cut", "xet that fails")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else []) for n in CASES]
)
def test_a_bad_machine_has_a_clear_line(hub, offline, monkeypatch, tmp_path, name):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PTRUN_ALLOW_BIN", "false")
    machine = Machine(hub, monkeypatch, tmp_path, offline)
    broken, parts = CASES[name]
    broken(machine)
    before = set(tmp_path.iterdir())
    with pytest.raises((UserError, OSError)) as caught:
        fetch(model(machine.name, machine.revision), check=needed)
    told = explained(caught.value) or caught.value
    assert isinstance(told, UserError)
    text = str(told)
    print(text)
    for part in parts:
        assert part in text, text
    assert 1 <= len(text.splitlines()) <= 3 and "Traceback" not in text and "refs/pr" not in text
    assert all(len(line) < 420 for line in text.splitlines())
    assert set(tmp_path.iterdir()) <= before | {tmp_path / "cache"}
    assert not [*(tmp_path / "cache").rglob("*.partial")] and not list(tmp_path.rglob("harmed"))
    made = (tmp_path / "cache" / "ptrun").rglob("*.safetensors")
    assert not list(made)


def needed(folder: Path) -> None:
    tokenizers.check_packages(folder, "t5" if (folder / "spiece.model").is_file() else "bert")
