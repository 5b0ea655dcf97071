"""Nothing reaches the hub without --push; with it, one call uploads the folder."""

from types import SimpleNamespace
from typing import ClassVar

import pytest

from ptrun.errors import UserError
from ptrun.exporting import export as hub
from ptrun.exporting.export import Exported, Parity


class Api:
    """Records the calls in place of the hub."""

    calls: ClassVar[list] = []

    def create_repo(self, repo, **options):
        Api.calls.append(("create", repo, options))

    def upload_folder(self, *, repo_id, folder_path, commit_message):
        files = sorted(file.name for file in folder_path.iterdir())
        Api.calls.append(("upload", repo_id, files, commit_message))
        return f"address of {repo_id}"


@pytest.fixture
def run(monkeypatch):
    """Return a stand-in for a run, whose export writes one file."""
    Api.calls = []
    monkeypatch.setattr("huggingface_hub.HfApi", Api)
    bases = []

    def export(run, typed, out, base):
        bases.append(base)
        out.mkdir()
        (out / "README.md").write_text("card")
        return Exported("LORA", "AutoModelForMaskedLM", Parity(1e-6, 1.0, 3, 6))

    monkeypatch.setattr(hub, "export", export)
    backbone = SimpleNamespace(hub=None, name="pocket_bert")
    return SimpleNamespace(backbone=backbone, done=SimpleNamespace(run_id="the-run"), bases=bases)


def test_without_push_it_says_what_would_be_uploaded(run):
    said = hub.to_hub(run, [], "ann/prompt", push=False)
    assert "README.md  4 bytes" in said and "Nothing was uploaded. Add --push" in said
    assert not Api.calls and run.bases == ["pocket_bert"]


def test_with_push_a_private_repository_gets_the_folder(run):
    said = hub.to_hub(run, [], "ann/prompt", push=True)
    assert Api.calls == [
        ("create", "ann/prompt", {"private": True, "exist_ok": True}),
        ("upload", "ann/prompt", ["README.md"], "ptrun the-run"),
    ]
    assert said.endswith("uploaded to address of ann/prompt")


@pytest.mark.parametrize("repo", ["prompt", "a/b/c", "ann/", "ann/two words"])
def test_a_name_that_is_none_is_refused(run, repo):
    with pytest.raises(UserError, match="expected USER/NAME"):
        hub.to_hub(run, [], repo, push=False)


def test_a_refusal_of_the_hub_says_what_to_type(run, monkeypatch):
    def refuse(*_, **__):
        raise OSError("401 Unauthorized")

    monkeypatch.setattr(Api, "create_repo", refuse)
    with pytest.raises(UserError, match=r"401 Unauthorized.*\n.*hf auth login"):
        hub.to_hub(run, [], "ann/prompt", push=True)
