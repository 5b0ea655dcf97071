"""The commit that a repository has, in one process and over ranks."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from ptrun.hub import repository
from ptrun.hub.repository import Repository, agree, loaded, pin, warn_of_moved
from tests.hub.conftest import DATA, MODEL, data_files, model_files

A, B, C = "a" * 40, "b" * 40, "c" * 40


def both():
    return [Repository("model", MODEL, "main"), Repository("dataset", DATA, "main")]


def test_recorded_commits_are_found_by_kind_id_and_revision():
    model, data = both()
    pin(
        [model, data],
        {f"models/{MODEL}@main": A, f"datasets/{DATA}@other": B, "datasets/x@main": C},
    )
    assert (model.recorded, data.recorded) == (A, None) and model.wanted == A
    model.found(A)
    assert loaded([model, data]) == {f"models/{MODEL}@main": A}


def test_the_commit_in_use_is_wanted_before_the_recorded_and_the_current_one():
    assert Repository("model", MODEL, "main").wanted == "main"
    assert Repository("model", MODEL, "main", current=C).wanted == C
    assert Repository("model", MODEL, "main", recorded=B, current=C).wanted == B
    assert Repository("model", MODEL, "main", recorded=B, commit=A, current=C).wanted == A


def test_only_a_revision_that_moved_is_told(caplog):
    moved = Repository("dataset", DATA, "main", recorded=A, current=B)
    same = Repository("model", MODEL, "main", recorded=A, current=A)
    unknown = Repository("model", MODEL, "main", recorded=A)
    warn_of_moved([moved, same, unknown, Repository("model", MODEL, "main", current=B)])
    (told,) = [one.getMessage() for one in caplog.records]
    assert all(part in told for part in (DATA, A, f"main is now at commit {B}"))
    assert told.endswith(f"Type task.source.revision={B} to run with the new one.")


def test_all_ranks_load_the_commit_that_the_first_one_found(hub):
    first, second = both(), both()
    named = []
    agree(first, lambda own: named.append(own) or own, main=True)
    hub.push("models", MODEL, model_files(**{"config.json": b"{}"}))
    hub.push("datasets", DATA, data_files("new"))
    agree(second, lambda own: named[0], main=False)
    assert [own.wanted for own in second] == [own.wanted for own in first]
    assert all(own.recorded == named[0][own.key] for own in second)


def test_a_recorded_commit_is_not_asked_for(hub):
    recorded = Repository("model", MODEL, "main", recorded=A)
    agree([recorded], lambda own: own, main=True)
    assert recorded.wanted == A and not hub.requests


def test_a_failure_of_xet_says_how_to_do_without():
    told = repository.failure(both()[0], RuntimeError("CAS Client Error: 404"))
    assert "the download failed (CAS" in told and "HF_HUB_DISABLE_XET=1" in told


@pytest.fixture
def unreachable(monkeypatch):
    from huggingface_hub import constants

    def refuse(*_, **__):
        raise OSError("no route")

    for key in ("HF_HUB_OFFLINE", "HF_ENDPOINT"):
        monkeypatch.setenv(key, "")  # put back afterwards, whatever the code sets
        monkeypatch.delenv(key)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(repository, "getproxies", dict)
    monkeypatch.setattr(repository.socket, "create_connection", refuse)
    repository.go_offline_if_unreachable.cache_clear()
    yield constants
    repository.go_offline_if_unreachable.cache_clear()


def test_without_a_network_the_cache_is_used_at_once(unreachable):
    trouble = Repository("model", MODEL, "main").ask()
    assert unreachable.HF_HUB_OFFLINE and type(trouble).__name__ == "OfflineModeIsEnabled"


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({"etag": '"abc-5"', "x-repo-commit": A}, False),
        ({"etag": 'W/"abc"'}, False),
        ({}, False),
        ({"etag": "../../out"}, True),
        ({"x-linked-etag": '"a/b"'}, True),
        ({"x-repo-commit": ".."}, True),
    ],
)
def test_headers_that_become_paths_are_names(headers, refused):
    asked = SimpleNamespace(method="HEAD")
    answer = SimpleNamespace(headers=headers, request=asked)
    with pytest.raises(OSError, match="not the name of a file") if refused else nullcontext():
        repository._check_names(answer)
    asked.method = "GET"  # of a content server, whose ETag may be Base64
    repository._check_names(answer)
