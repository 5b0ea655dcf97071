"""Slurm jobs without a Slurm: what they ask for, and which runs are in the queue."""

import os
import stat
import sys

import pytest

from ptrun.config.schema import ClusterConfig, SweepConfig
from ptrun.errors import UserError
from ptrun.sweeps import queue, slurm
from ptrun.sweeps.job import Job
from tests.clock import own_clock

NEEDS = {"device": "cpu", "ranks": 1, "gib": 3.5, "each": 0.25, "seconds": 60.0}


def group(count, **needs):
    jobs = [Job(index, "", ()) for index in range(count)]
    for job in jobs:
        job.needs = NEEDS | needs
    return jobs


def asked(*groups, **cluster):
    return slurm.parameters(ClusterConfig(**cluster), groups)


def test_a_job_asks_for_what_its_largest_group_needs():
    found = asked(group(1), group(5))
    assert found["mem"] == "4608MB"  # 3.5 + 4 x 0.25 GiB
    assert found["time"] == 18  # 10 + 1.5 x 5 minutes, rounded up
    assert found["ntasks_per_node"] == 1 and "gpus_per_node" not in found


def test_ranks_are_divided_over_nodes_and_have_a_gpu_each():
    found = asked(group(1, ranks=8, device="cuda"), nodes=2, memory=64)
    assert (found["nodes"], found["ntasks_per_node"], found["gpus_per_node"]) == (2, 4, 4)
    assert found["mem"] == "65536MB"


def test_what_the_cluster_file_says_is_passed_on():
    found = asked(group(1), partition="long", account="me", sbatch={"mail-type": "FAIL"})
    assert (found["partition"], found["account"]) == ("long", "me") and "qos" not in found
    assert found["additional_parameters"] == {"requeue": True, "mail-type": "FAIL"}


@pytest.mark.parametrize(
    ("nodes", "typed", "ranks", "cores"),
    [
        ("2", None, 1, 2),
        ("2", 3, 1, 3),
        ("64\\n2+", None, 1, 4),
        ("8", None, 4, 2),
        ("", None, 1, 4),
    ],
)
def test_the_cores_of_a_process_fit_the_nodes(squeue, nodes, typed, ranks, cores):
    squeue(f"{nodes}\\n", "sinfo")
    found = asked(group(1, ranks=ranks), cpus=typed)
    assert found["cpus_per_task"] == cores


@pytest.fixture
def squeue(tmp_path, monkeypatch):
    """Return a function that makes `squeue` or another program print some text."""

    def tell(text, name="squeue"):
        file = tmp_path / "bin" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\nprintf '{text}'\n")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{file.parent}{os.pathsep}{os.environ['PATH']}")

    return tell


@pytest.mark.parametrize(("answer", "cancelled"), [("y", ["7_0"]), ("", []), ("n", [])])
def test_an_interrupt_while_waiting_asks_whether_to_cancel(monkeypatch, answer, cancelled):
    asked, done = [], []
    monkeypatch.setattr(slurm.sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda text: asked.append(text) or answer)
    monkeypatch.setattr(queue, "cancel", done.extend)
    own_clock(monkeypatch, slurm, sleep=_interrupt)
    job = Job(0, "", (), stage="elsewhere", folder=slurm.Path("nowhere"))
    waiting = slurm.Slurm([job], SweepConfig(wait=True))
    waiting.tasks, waiting.outputs = {"7_0": [job]}, slurm.Path("nowhere")
    monkeypatch.setattr(waiting, "_look", lambda view: None)
    with pytest.raises(KeyboardInterrupt):
        waiting._wait()
    assert asked == ["Cancel 1 jobs? Their runs are saved. [y/N] "] and done == cancelled


def _interrupt(_seconds):
    raise KeyboardInterrupt


def test_processes_are_divided_evenly_and_single_ones_stay_on_a_node():
    assert asked(group(1), nodes=2)["nodes"] == 1
    with pytest.raises(UserError, match=r"cluster\.nodes=2: a run has 3 processes"):
        asked(group(1, ranks=3), nodes=2)


def test_without_slurm_the_queue_is_empty_and_a_job_is_refused(tmp_path, monkeypatch):
    recorded(tmp_path, _0="a")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert queue.queued(tmp_path) == {}
    with pytest.raises(UserError, match="Type it on a login node"):
        slurm._executor(tmp_path, {})


@pytest.mark.parametrize("key", ["partition", "account", "qos", "constraint"])
def test_a_line_break_begins_no_line_of_the_script(key):
    with pytest.raises(UserError, match=rf"cluster\.{key}=a\\ntouch own has a control character"):
        asked(group(1), **{key: "a\ntouch own"})
    with pytest.raises(UserError, match=r"cluster\.sbatch\.mail=x\\n"):
        asked(group(1), sbatch={"mail": "x\n#SBATCH --wrap=y"})
    assert "module load x" in asked(group(1), setup=["module load x"])["setup"]


def test_a_job_imports_nothing_from_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "srun").touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    executor = slurm._executor(tmp_path / "jobs", {})
    assert executor._submitit_command_str.startswith(f"{sys.executable} -P -u -m submitit")


def test_links_out_of_the_folder_of_jobs_are_refused_and_those_of_submitit_are_not(tmp_path):
    """It links `.submission_file_ID.sh` to the script of a job; a second sweep finds it there."""
    logs = tmp_path / ".jobs"
    (logs / "31").mkdir(parents=True)
    (logs / "31" / "31_submission.sh").write_text("")
    (logs / ".submission_file_a.sh").symlink_to(logs / "31" / "31_submission.sh")
    slurm._check_links(logs)
    (logs / "32").symlink_to(tmp_path)
    with pytest.raises(OSError, match="a link among the folders of jobs"):
        slurm._check_links(logs)


@pytest.mark.parametrize(
    ("needed", "typed", "minutes"),
    [
        ({"seconds": None}, {"max_time": 600}, 600),
        ({"seconds": 1e6}, {"max_time": 600}, 600),
        ({"seconds": 1e6}, {"time": 30}, 30),
    ],
)
def test_time_without_a_speed_is_the_longest_and_a_typed_one_wins(needed, typed, minutes):
    assert asked(group(1, **needed), **typed)["time"] == minutes


def recorded(folder, **tasks):
    """Record the runs of tasks; return the record of job 7."""
    (folder / queue.FOLDER).mkdir()
    queue.record(folder, {f"7_{n[1:]}": [folder / run for run in own] for n, own in tasks.items()})
    return folder / queue.FOLDER / "7.json"


def test_runs_are_found_in_the_queue_by_their_tasks_with_why_they_wait(tmp_path, squeue):
    recorded(tmp_path, _0="ab", _1="c", _2="d", _3="e", _4="f")
    squeue("7_0 RUNNING None\\n7_1 PENDING Priority\\n7_2 PENDING PartitionConfig\\n8 PENDING\\n"
           "7_3 PENDING ReqNodeNotAvail, UnavailableNodes:n1\\n")  # fmt: skip
    assert {folder.name: told for folder, told in queue.queued(tmp_path).items()} == {
        **dict.fromkeys("ab", "job 7_0, running"),
        "c": "job 7_1, pending: Priority",
        "d": "job 7_2, pending: PartitionConfig; type cluster.KEY=VALUE",
        "e": "job 7_3, pending: ReqNodeNotAvail, UnavailableNodes:n1",
    }
    squeue("")
    assert queue.queued(tmp_path) == {}
    squeue("slurm_load_jobs error: Socket timed out\\n' >&2; exit 1; printf '")
    with pytest.raises(UserError, match="squeue does not answer: slurm_load_jobs error: Socket"):
        queue.queued(tmp_path)


@pytest.mark.parametrize("text", ["", "[1]", '{"7": 3}', '{"7": [3]}', "\udcff", None])
def test_a_damaged_record_is_named(tmp_path, squeue, text):
    squeue("7_0 RUNNING\\n")
    file = recorded(tmp_path, _0="a")
    other = file.read_text().replace("/a", "/b")  # another path
    file.write_text(other if text is None else text, errors="surrogateescape")
    with pytest.raises(UserError, match=r"7\.json: damaged\. Delete it"):
        queue.queued(tmp_path)
