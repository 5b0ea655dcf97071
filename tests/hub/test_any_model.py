"""`backbone.hub=ORG/NAME`: a model of the hub without a file for it, of a type without an entry."""

import json
import shlex

import pytest

from ptrun.command import check, run
from ptrun.errors import UserError
from ptrun.folder import request
from tests.backbone import types

TYPED = ["backbone.hub=someone/gemma-tiny", "task=pocket_sentiment", "train.max_steps=2"]
TYPED += ["method=ptuning_v2", "method.length=2", "train.batch_size=4", "hardware=cpu"]


@pytest.fixture
def gemma(tmp_path, hub, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = types.make("gemma2", tmp_path / "gemma")
    files = {own.name: own.read_bytes() for own in folder.iterdir()}
    hub.push("models", "someone/gemma-tiny", files)
    return hub


def test_a_run_needs_the_id_alone(gemma, tmp_path, offline, capsys):
    run.main(TYPED)
    (result,) = (tmp_path / "outputs").rglob("result.json")
    manifest = json.loads(result.read_text())["manifest"]
    assert (
        manifest["backbone"]["commit"] == gemma.repos["models", "someone/gemma-tiny"].refs["main"]
    )
    assert "gemma_tiny" in str(result)
    again = shlex.split(request.command(request.read(result.parent)))
    assert "backbone=hub" in again and "backbone.hub=someone/gemma-tiny" in again
    offline()
    check.main(TYPED)  # from the cache
    assert "gemma_tiny" in capsys.readouterr().out


def test_config_json_is_the_only_file_that_a_check_downloads(gemma, tmp_path):
    check.main([own for own in TYPED if "max_steps" not in own])
    assert not list(tmp_path.rglob("blobs/*.safetensors"))


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (["backbone=hub"], "type backbone.hub=ORG/NAME"),
        (["backbone.hub=someone/nothing"], "someone/nothing"),
        (["backbone.hub=someone/rows"], "no config.json at revision main"),
    ],
)
def test_an_id_that_is_no_model_is_refused(gemma, typed, told):
    gemma.push("models", "someone/rows", {"README.md": b"rows"})
    with pytest.raises(UserError, match=told):
        check.main([*typed, "task=pocket_sentiment"])
