"""A run through its launcher: composed once, checked before any rank starts, done in a rank."""

import pytest

from ptrun.errors import UserError
from ptrun.folder import result
from ptrun.runs.launch import launch
from tests.tiers import package

HARDWARE = {"_target_": "ptrun.hardware.deepspeed_engine.DeepSpeedEngine", "device": "cpu"}
HARDWARE |= {"precision": "fp32", "token_budget": 2048, "checkpointing": False}
HARDWARE |= {"model_parallel": 1, "ranks": None}


@pytest.fixture
def no_rank(monkeypatch):
    """Return a function after which no rank may be started."""

    def refused(*_, **__):
        raise AssertionError("a rank was started")

    return lambda: monkeypatch.setattr("ptrun.hardware.start_ranks.start", refused)


@pytest.fixture
def composed(small):
    line = ["method.length=3", "train.max_steps=1"]
    return lambda *overrides, **hardware: small(
        *line, *overrides, given={"hardware": HARDWARE | hardware}
    )


@pytest.mark.slow
def test_a_run_is_done_in_its_rank_and_found_afterwards(composed, tmp_path, no_rank):
    package("deepspeed")
    done = launch(composed())
    (folder,) = result.run_folders(tmp_path)
    assert done.status == "finished" and result.read(folder) == done
    no_rank()
    assert launch(composed()) == done


@pytest.mark.parametrize(
    ("overrides", "hardware", "told"),
    [
        (["method.lenght=3"], {}, "method.lenght: unknown"),
        ([], {"model_parallel": 2, "ranks": 3}, "hardware.ranks is 3, .*hardware.ranks=2"),
    ],
    ids=["misspelt", "ranks"],
)
def test_a_mistake_is_told_before_any_rank_starts(
    composed, tmp_path, no_rank, overrides, hardware, told
):
    no_rank()
    with pytest.raises(UserError, match=told):
        launch(composed(*overrides, **hardware))
    assert not result.run_folders(tmp_path)


@pytest.mark.slow
def test_under_a_launcher_plain_hardware_is_refused_by_every_rank(warm, tmp_path):
    told = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}
    env = {**told, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    line = ["-m", "ptrun", "--local_rank=1", "task=pocket_sentiment"]
    with warm.start(line, tmp_path, env) as done:
        assert done.wait() == 1 and done.out == ""
    assert done.err.startswith("ptrun: rank 1: a launcher started 2 processes")
    assert "hardware=zero1" in done.err
