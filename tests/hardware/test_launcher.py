"""Who a process is under each launcher, from environments as those launchers make them."""

import pytest

from ptrun.errors import UserError
from ptrun.hardware.environment import environment, without_local_rank

TORCHRUN = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}
TORCHRUN |= {"MASTER_ADDR": "gpu07", "MASTER_PORT": "29500"}
STEP = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "2", "SLURM_PROCID": "5", "SLURM_NTASKS": "8"}
STEP |= {"SLURM_LOCALID": "1", "SLURM_NODEID": "1", "SLURM_STEP_TASKS_PER_NODE": "4(x2)"}
STEP |= {"SLURM_STEP_NODELIST": "gpu[07-08]", "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.9"}


def without(env, *keys):
    return {key: value for key, value in env.items() if key not in keys}


@pytest.mark.parametrize("around", [{"PATH": "/bin"}, STEP], ids=["shell", "slurm job"])
def test_a_launcher_tells_all(around):
    assert environment({**around, **TORCHRUN}) == TORCHRUN


@pytest.mark.parametrize("missing", ["LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"])
def test_what_a_launcher_left_out_is_named(missing):
    with pytest.raises(UserError, match=f"RANK=5 and WORLD_SIZE=8 are set, but not {missing}"):
        environment(without(TORCHRUN, missing))


def test_a_step_of_slurm_is_read():
    assert environment(STEP) == {**TORCHRUN, "MASTER_PORT": str(10_000 + (64 * 4711 + 2) % 20_000)}


def test_all_tasks_of_a_step_meet_at_one_place():
    def task(i):
        place = {"SLURM_LOCALID": str(i % 4), "SLURM_NODEID": str(i // 4)}
        return environment({**STEP, "SLURM_PROCID": str(i), **place})

    met = {(own["MASTER_ADDR"], own["MASTER_PORT"]) for own in map(task, range(8))}
    assert len(met) == 1
    other = environment({**STEP, "SLURM_STEP_ID": "3"})
    assert other["MASTER_PORT"] not in {port for _, port in met}


@pytest.mark.parametrize(
    ("changed", "address"),
    [
        ({"SLURM_STEP_NODELIST": "gpu[007,09-12],cpu1"}, "gpu007"),
        ({"SLURM_STEP_NODELIST": "login,gpu[1-2]"}, "login"),
        ({"SLURM_STEP_NODELIST": "rack[2-3]n[04-08]-ib"}, "rack2n04-ib"),
        ({"SLURM_STEP_NODELIST": "", "SLURM_JOB_NODELIST": "a1.site.org,a2"}, "a1.site.org"),
        ({"SLURM_STEP_NODELIST": ""}, "10.0.0.9"),
        ({"MASTER_ADDR": "typed"}, "typed"),
        ({"SLURM_STEP_TASKS_PER_NODE": "8", "SLURM_NODEID": "0"}, "127.0.0.1"),
    ],
)
def test_rank_0_is_on_the_first_node_of_a_step(changed, address):
    assert environment({**STEP, **changed})["MASTER_ADDR"] == address


def test_a_step_may_be_smaller_than_its_job_and_uneven():
    told = {"SLURM_STEP_NUM_TASKS": "7", "SLURM_STEP_TASKS_PER_NODE": "2(x3),1"}
    found = environment({**STEP, **told, "SLURM_NODEID": "3", "SLURM_PROCID": "6"})
    assert (found["WORLD_SIZE"], found["MASTER_ADDR"]) == ("7", "gpu07")


NO_RANK = {
    "shell": {},
    "no world": {"RANK": "3"},
    "no rank": {"WORLD_SIZE": "4"},
    "sbatch": without(STEP, "SLURM_STEP_ID"),
    "batch step": {**STEP, "SLURM_STEP_ID": "4294967291"},
    "srun --pty bash": {**STEP, "SLURM_PTY_PORT": "35001"},
    "one task": {**STEP, "SLURM_NTASKS": "1"},
}


@pytest.mark.parametrize("name", NO_RANK)
def test_a_process_of_the_users_own_is_no_rank(name):
    assert environment(NO_RANK[name]) is None


def test_nodes_without_names_are_refused():
    nameless = without(STEP, "SLURM_STEP_NODELIST", "SLURM_LAUNCH_NODE_IPADDR")
    with pytest.raises(UserError, match="set MASTER_ADDR"):
        environment(nameless)


def test_only_the_launchers_own_argument_is_taken_away():
    kept = ["hardware=zero1", "name=--local_rank=x", "--local_rank", "seed=1"]
    assert without_local_rank(["--local_rank=3", *kept, "--local-rank=12"]) == kept
