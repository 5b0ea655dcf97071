"""Who is who among the processes of a run; what they tell each other is tried in real ones."""

import signal
import socket
import subprocess
import sys

import pytest

from ptrun.errors import UserError
from ptrun.hardware.ranks import ALONE, Ranks, own_gpu
from workshop.drill.warm import RANKS


def test_alone_nothing_is_shared():
    assert ALONE.main and ALONE.data_parallel == 1 and ALONE.division("cpu") is None
    assert (
        ALONE.broadcast(3) == 3 and ALONE.total([1.0]) == [1.0] and ALONE.merged({1: 2}) == {1: 2}
    )
    ALONE.wait()
    ALONE.check_same(7, 1)
    assert ALONE.decided([3, 0]) == [3, 0]


@pytest.mark.parametrize(("rank", "share", "place"), [(0, 0, 0), (3, 0, 3), (4, 1, 0), (6, 1, 2)])
def test_neighbours_hold_one_model(rank, share, place):
    ranks = Ranks(rank, 8, 4, tensor="group")
    assert (ranks.share, ranks.data_parallel, ranks.main) == (share, 2, rank == 0)
    division = ranks.division("cpu")
    assert (division.rank, division.size, division.group) == (place, 4, "group")


@pytest.mark.parametrize(
    ("visible", "slurm", "gpu"), [(4, None, 3), (4, "3", 3), (1, "3", 0)], ids=["own", "all", "one"]
)
def test_a_rank_finds_its_gpu(visible, slurm, gpu):
    """`srun --gpus-per-task=1` shows each rank one device, which has the index 0."""
    env = {"LOCAL_RANK": "3"} | ({"SLURM_LOCALID": slurm} if slurm else {})
    assert own_gpu(env, visible) == gpu and env["LOCAL_RANK"] == str(gpu)


def test_more_ranks_than_gpus_are_refused():
    with pytest.raises(UserError, match="LOCAL_RANK=2, but 2 GPUs are visible"):
        own_gpu({"LOCAL_RANK": "2"}, 2)


MEETING = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
PROGRAM = """\
import logging
from ptrun.hardware import ranks
logging.basicConfig()
ranks.{}
ranks.connect("cpu")
"""


@pytest.fixture
def started(warm, tmp_path):
    """Start a rank that connects, with a change of its module."""

    def start(change="_SILENT = 0.2", **env):
        line = ["-c", PROGRAM.format(change)]
        return warm.start(line, tmp_path, {**MEETING, **env}, imports=RANKS)

    return start


@pytest.fixture
def port():
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        yield opened


@pytest.mark.slow
def test_a_waiting_rank_says_so_and_hears_signals(started, port):
    number = port.getsockname()[1]
    port.close()
    with started(MASTER_PORT=str(number)) as rank:
        said = rank.first_error()
        assert f"rank 0 waits for all 2 ranks to meet at 127.0.0.1:{number}" in said
        rank.send_signal(signal.SIGTERM)
        assert rank.wait(timeout=20) == -signal.SIGTERM


LOST = {
    "did not meet at no-such-host.invalid": {"RANK": "1", "MASTER_ADDR": "no-such-host.invalid"},
    "did not meet at 127.0.0.1:": {},
    "rank 1: the 2 ranks did not meet": {"RANK": "1"},
}


@pytest.mark.slow
@pytest.mark.parametrize("said", LOST)
def test_ranks_that_do_not_meet_give_up_with_the_reason(started, port, said):
    number = port.getsockname()[1]
    port.close()
    change = "_MEETING = ranks.timedelta(seconds=2)"
    with started(change, MASTER_PORT=str(number), **LOST[said]) as rank:
        assert rank.wait(timeout=90) == 1
    assert "UserError" in rank.err and said in rank.err


@pytest.mark.slow
def test_a_port_in_use_is_named(started, port):
    port.listen()
    with started(MASTER_PORT=str(port.getsockname()[1])) as rank:
        rank.wait(timeout=90)
    assert f"MASTER_PORT={port.getsockname()[1]}: another program uses this port" in rank.err


@pytest.mark.slow
def test_deepspeed_prints_nothing_where_results_are_printed():
    program = (
        "import builtins, sys; first = builtins.__import__\n"
        "def talking(name, *rest, **more):\n"
        "    if name.startswith('deepspeed'): print('[WARNING] compatibility check failed')\n"
        "    return first(name, *rest, **more)\n"
        "from ptrun.hardware.ranks import imported\n"
        "builtins.__import__ = talking; imported('cpu')\n"
    )
    line = [sys.executable, "-c", program]
    ran = subprocess.run(line, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0 and ran.stdout == "", ran.stderr
