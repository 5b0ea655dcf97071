"""A hub on this machine that the hub libraries of this process talk to, with an empty cache."""

import io
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import datasets.config
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import HfFileSystem, close_session, constants
from huggingface_hub.utils import _http

from ptrun.backbone.files import SHIPPED
from ptrun.errors import UserError
from ptrun.hub import download
from ptrun.hub.convert import convert_folder
from ptrun.hub.repository import Repository
from tests.hub.server import Hub

MODEL, DATA = "someone/pocket", "someone/reviews"
SPLITS = ("train", "validation", "test")


def model(name=MODEL, revision="main", **given):
    return Repository("model", name, revision, **given)


def fetch(repository, **options):
    """Download a model as a backbone does."""
    return download.fetch(repository, convert_folder, **options)


def refused(repository, **options):
    """Return the error of a download, which comes within ten seconds."""
    started = time.monotonic()
    with pytest.raises(UserError) as caught:
        fetch(repository, **options)
    assert time.monotonic() - started < 10
    return str(caught.value)


def model_files(**changed: bytes) -> dict[str, bytes]:
    """Return the files of the shipped BERT, as a repository of the hub has them."""
    return {file.name: file.read_bytes() for file in (SHIPPED / "pocket_bert").iterdir()} | changed


def parquet(word: str, count: int = 12) -> bytes:
    rows = [
        {"text": f"{word} film {i} is {'good' if i % 2 else 'bad'}", "label": i % 2}
        for i in range(count)
    ]
    kinds = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["bad", "good"])}
    )
    table = datasets.Dataset.from_list(rows, features=kinds).data.table
    written = io.BytesIO()
    pq.write_table(pa.table(table), written)
    return written.getvalue()


def data_files(word: str = "a") -> dict[str, bytes]:
    """Return the files of a data set of three splits."""
    rows = {f"data/{s}-00000-of-00001.parquet": parquet(f"{word} {s}") for s in SPLITS}
    return {"README.md": b"---\nlicense: mit\n---\nOpinions on films.\n", **rows}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Start a hub with a model and a data set."""
    with Hub() as served:
        served.push("models", MODEL, model_files())
        served.push("datasets", DATA, data_files())
        _connect(monkeypatch, served.endpoint, tmp_path / "cache")
        yield served
    close_session()


def _connect(patch: pytest.MonkeyPatch, endpoint: str, cache: Path) -> None:
    """Set what the libraries read from the environment when they are imported."""
    patch.setenv("HF_ENDPOINT", endpoint)
    patch.delenv("HF_TOKEN", raising=False)
    patch.setattr(constants, "ENDPOINT", endpoint)
    template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    patch.setattr(constants, "HF_HOME", str(cache))
    patch.setattr(constants, "HF_HUB_CACHE", str(cache / "hub"))
    patch.setattr(constants, "HF_TOKEN_PATH", str(cache / "token"))
    patch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    patch.setattr(constants, "HF_HUB_ETAG_TIMEOUT", 1)
    patch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 1)
    patch.setattr(datasets.config, "HF_ENDPOINT", endpoint)
    patch.setattr(datasets.config, "HF_DATASETS_CACHE", str(cache / "datasets"))
    for config in (constants, datasets.config):
        patch.setattr(config, "HF_HUB_OFFLINE", False)
    patch.setattr(_http, "time", SimpleNamespace(sleep=lambda _: None))  # before it asks again
    HfFileSystem.clear_instance_cache()
    close_session()


@pytest.fixture
def offline(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return what sets HF_HUB_OFFLINE=1."""

    def switch() -> None:
        for config in (constants, datasets.config):
            monkeypatch.setattr(config, "HF_HUB_OFFLINE", True)
        hub.requests.clear()

    return switch
