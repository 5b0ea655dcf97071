"""Files that the hub offers through xet: without that package, or with its store broken."""

import pytest
from huggingface_hub import constants, file_download

from ptrun.errors import UserError
from ptrun.hub.repository import model
from tests.hub.conftest import MODEL, fetch, model_files
from tests.tiers import package

TENSORS = "model.safetensors"


@pytest.fixture
def xet(hub, monkeypatch):
    """Leave xet on, as a user has it."""
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", False)
    return hub


def test_without_the_package_files_are_downloaded_plainly(xet, monkeypatch, caplog):
    monkeypatch.setattr(file_download, "is_xet_available", lambda: False)
    folder = fetch(model(MODEL, "main"))
    assert (folder / TENSORS).read_bytes() == model_files()[TENSORS]
    assert not any("xet-read-token" in one.line for one in xet.requests)


@pytest.mark.parametrize("on", [True, False], ids=["without the package", "switched off"])
def test_a_token_does_not_follow_the_redirect_to_another_host(xet, monkeypatch, on):
    xet.gated[MODEL] = "secret"
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", not on)
    monkeypatch.setattr(file_download, "is_xet_available", lambda: False)
    fetch(model(MODEL, "main"))
    asked = [one for one in xet.requests if not one.sent]
    stored = [one for one in asked if "/store/" in one.line]
    assert stored and not any(one.token for one in stored)
    # Not all requests: the libraries may send telemetry from a thread, without a token.
    assert {one.token for one in asked if MODEL in one.line} == {"secret"}


@pytest.mark.slow
def test_a_store_that_fails_is_told_with_the_way_around_it(xet):
    """The package is asked for the file; its store answers 404 to everything."""
    package("hf_xet")
    with pytest.raises(UserError, match="HF_HUB_DISABLE_XET=1") as caught:
        fetch(model(MODEL, "main"))
    assert len(str(caught.value).splitlines()) == 2
    constants.HF_HUB_DISABLE_XET = True
    assert fetch(model(MODEL, "main")).is_dir()
