"""The scheduler with workers that train nothing: order, groups, failures, devices."""

import json
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from safetensors.numpy import save_file

from ptrun.config.schema import Retry, Share, SweepConfig
from ptrun.errors import UserError
from ptrun.folder import lease
from ptrun.folder.digest import packed
from ptrun.folder.scan import RunState
from ptrun.sweeps import queue, workers
from ptrun.sweeps import scheduler as scheduling
from ptrun.sweeps import sweep as sweeping
from ptrun.sweeps.scheduler import Scheduler
from ptrun.sweeps.sweep import of_line
from ptrun.sweeps.view import View

WORKER = [sys.executable, str(Path(__file__).with_name("fake_worker.py"))]
FAILED = {"run_id": "run-2", "group": "g", "names": {}, "seed": 1, "metric": "accuracy"}
FAILED |= {"learned_parameters": {}, "config": {}, "status": "failed", "reason": "loss nan"}


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    """Return a function that does a sweep: its scheduler and the rows of the journal."""
    journal = tmp_path / "journal"
    monkeypatch.setenv("JOURNAL", str(journal))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    def do(*overrides, **options):
        jobs = of_line([f"outputs={tmp_path / 'outputs'}", *overrides])
        done = Scheduler(jobs, SweepConfig(**options), View(len(jobs)), WORKER)
        done.run()
        rows = (
            [json.loads(line) for line in journal.read_text().splitlines()]
            if journal.exists()
            else []
        )
        return done, rows

    return do


def stages(done):
    return [job.stage for job in done.jobs]


def started(rows):
    return [row["seeds"] for row in rows if row["event"] == "start"]


def test_runs_of_one_shape_are_one_group_and_others_are_alone(sweep):
    done, rows = sweep("method=ptuning_v2,fine_tuning", "seed=1,2,3")
    assert started(rows) == [[1, 2, 3], [1], [2], [3]]
    assert stages(done) == ["finished"] * 6


def test_a_run_that_others_need_is_done_before_them_once(sweep):
    done, rows = sweep("seed=301,302,4")
    assert [(*seeds,) for seeds in started(rows)][-1] == (301, 302)
    assert sorted(started(rows)) == [[3], [4], [301, 302]] and stages(done) == ["finished"] * 4


def test_a_run_is_refused_if_what_it_needs_failed(sweep):
    done, rows = sweep("seed=1301,4")
    assert sorted(started(rows)) == [[4], [13]] and stages(done) == [
        "refused",
        "finished",
        "failed",
    ]
    assert done.jobs[0].text == "needs run-13, which is failed: failed"


def test_a_list_names_what_a_run_needs(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sweeping, "COMMAND", WORKER)
    jobs = of_line([f"outputs={tmp_path}", "seed=301,4"])
    assert sweeping.do(jobs, SweepConfig(dry_run=True))
    shown = capsys.readouterr().out
    assert "run-301  needs run-3\n" in shown and "needed by others  run-3\n" in shown
    assert "3 of 3 runs are left" in shown


def test_what_a_sweep_has_still_to_do_is_recorded_until_all_is_finished(sweep, tmp_path):
    sweep("seed=13,2,11,301")
    left = [folder.name for folder in queue.of_sweeps(tmp_path / "outputs")]
    assert left == ["run-13", "run-2", "run-301", "run-3"], "the refused one is not to be done"
    sweep("seed=5,6")
    sweep("seed=13,11")  # begins with the same run
    assert len(queue.of_sweeps(tmp_path / "outputs")) == 5
    sweep("seed=13,2,11,301")
    assert len([*(tmp_path / "outputs" / queue.FOLDER).iterdir()]) == 2


@pytest.mark.parametrize("part", ["1/2", "2/2"])
def test_a_shard_of_the_runs_is_done(sweep, tmp_path, monkeypatch, part):
    monkeypatch.setattr(sweeping, "Scheduler", partial(Scheduler, command=WORKER))
    jobs = of_line([f"outputs={tmp_path / 'outputs'}", "seed=1,2,3,4,5"])
    assert sweeping.do(jobs, SweepConfig(shard=part))
    rows = [json.loads(line) for line in (tmp_path / "journal").read_text().splitlines()]
    assert started(rows) == [[1, 2] if part == "1/2" else [3, 4, 5]]


def test_an_interrupted_group_stays_together(sweep, tmp_path):
    for seed, group in ((1, "ab"), (2, "cd"), (3, "ab"), (4, "cd")):
        folder = tmp_path / "outputs/runs" / f"run-{seed}"
        folder.mkdir(parents=True)
        header = packed({"state": json.dumps({"step": 2, "group": list(group)})})
        save_file({}, folder / "state.safetensors", header)
    _, rows = sweep("seed=1,2,3,4,5")
    assert started(rows) == [[1, 3], [2, 4], [5]]


@pytest.mark.slow
def test_without_sharing_each_run_is_alone(sweep):
    _, rows = sweep("seed=1,2,3", share=Share.none)
    assert started(rows) == [[1], [2], [3]]


def test_a_failure_and_a_refusal_end_their_own_runs_only(sweep, capsys):
    done, rows = sweep("seed=1,11,13,2")
    assert stages(done) == ["finished", "refused", "failed", "finished"]
    assert started(rows) == [[1, 13, 2]]
    told = capsys.readouterr().err
    assert "seed=11: no such row" in told and "seed=13: failed" in told and ".log" in told


def test_a_bad_value_ends_its_own_run_only(sweep, capsys):
    done, _ = sweep("train.epochs=1,nonsense")
    assert stages(done) == ["finished", "refused"]
    assert "nonsense" in capsys.readouterr().err


def test_runs_of_a_worker_that_dies_twice_are_done_one_by_one(sweep, capsys):
    done, rows = sweep("seed=1,17,2")
    assert started(rows) == [[1, 17, 2], [1, 17, 2], [1], [17], [2]]
    assert stages(done) == ["finished", "failed", "finished"]
    assert "ended with signal 9: its last line" in capsys.readouterr().err


@pytest.mark.slow
def test_runs_whose_planning_dies_have_failed(sweep, monkeypatch, capsys):
    monkeypatch.setenv("DIES_PLANNING", "1")
    done, _ = sweep("seed=1,2")
    assert stages(done) == ["failed"] * 2
    assert "its process ended with exit code 7" in capsys.readouterr().err


@pytest.mark.slow
def test_fail_fast_starts_nothing_more(sweep):
    done, rows = sweep("seed=1,13,2,3", fail_fast=True, share=Share.none)
    assert stages(done) == ["finished", "failed", "left", "left"]
    assert started(rows) == [[1], [13]]


@pytest.mark.slow
def test_six_groups_on_two_devices_are_never_two_on_one(sweep, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,7")
    monkeypatch.setattr(scheduling, "slots", lambda *_: ["3", "7"])
    done, rows = sweep("seed=1,2,3,4,5,6", share=Share.none)
    assert stages(done) == ["finished"] * 6
    assert {row["device"] for row in rows} == {"3", "7"}
    for device in ("3", "7"):
        events = [row["event"] for row in rows if row["device"] == device]
        assert events == ["start", "end"] * (len(events) // 2)


def test_cores_are_divided_over_devices(sweep, monkeypatch):
    monkeypatch.setattr(workers, "cores", lambda: 6)
    _, rows = sweep("seed=1,2,3,4", devices=3)
    assert {row["threads"] for row in rows} == {"2"}


def test_a_run_of_another_process_is_left_to_it(sweep, tmp_path):
    with lease.held(tmp_path / "outputs" / "runs" / "run-2"):
        done, rows = sweep("seed=1,2,3")
    assert stages(done) == ["finished", "elsewhere", "finished"]
    assert started(rows) == [[1, 3]]


@pytest.mark.slow
def test_a_waiting_sweep_does_what_another_process_leaves(sweep, tmp_path, monkeypatch):
    monkeypatch.setattr(scheduling, "_LOOK", 0.1)
    other = lease.held(tmp_path / "outputs" / "runs" / "run-2")
    other.__enter__()
    looked = []

    class Watching(View):
        def show(self, jobs):
            if [job.stage for job in jobs] == ["finished", "elsewhere"] and not looked:
                looked.append(other.__exit__(None, None, None))

    monkeypatch.setattr(sys.modules[__name__], "View", Watching)
    done, rows = sweep("seed=1,2", wait=True)
    assert stages(done) == ["finished"] * 2 and started(rows) == [[1], [2]]


@pytest.mark.parametrize("retry", Retry)
def test_a_failed_run_is_tried_again_on_request(sweep, tmp_path, retry):
    folder = tmp_path / "outputs" / "runs" / "run-2"
    folder.mkdir(parents=True)
    (folder / "failure.json").write_text(json.dumps(FAILED))
    done, rows = sweep("seed=1,2", retry=retry)
    tried = retry is Retry.failed
    assert stages(done) == ["finished", "finished" if tried else "failed"]
    assert started(rows) == [[1, 2] if tried else [1]]


def test_a_dry_run_starts_nothing(sweep):
    done, rows = sweep("method=ptuning_v2,fine_tuning", "seed=1,2", dry_run=True)
    assert rows == [] and [[job.index for job in own] for own in done.listed] == [[0, 1], [2], [3]]


def test_a_run_that_is_typed_twice_is_done_once(caplog):
    assert [job.title for job in of_line(["seed=1,2,1", "method=lora"])] == ["seed=1", "seed=2"]
    assert "1 of 3 runs are typed twice" in caplog.text


def test_a_dry_run_says_what_is_refused_and_why(sweep, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sweeping, "COMMAND", WORKER)
    jobs = of_line([f"outputs={tmp_path / 'outputs'}", "seed=1,x"])
    assert not sweeping.do(jobs, SweepConfig(dry_run=True))
    told = capsys.readouterr().out
    assert "expected int, got 'x'" in told and "1 of 2 runs are left, in 1 group; 1 refused" in told


@pytest.mark.parametrize("rerun", [False, True])
def test_rerun_repairs_a_damaged_result(tmp_path, rerun):
    (job,) = jobs = of_line([f"outputs={tmp_path}"])
    job.composed = SimpleNamespace(rerun=rerun)
    done = Scheduler(jobs, SweepConfig(), View(1, quiet=True), WORKER)
    assert done._is_left(job, RunState("damaged", "result.json: damaged")) is rerun
    assert job.stage == ("waiting" if rerun else "refused")


def test_equal_shapes_share_up_to_the_limit_and_none_is_alone():
    items = [("a", 1), ("b", 2), (None, 3), ("a", 4), ("a", 5), (None, 6), ("b", 7)]
    assert scheduling.groups(items, 2, 1) == [[1, 4], [2, 7], [3], [5], [6]]
    assert scheduling.groups(items, 8, 1) == [[1, 4, 5], [2, 7], [3], [6]]


def test_each_worker_gets_a_group_if_there_are_few_shapes():
    items = [("a", number) for number in range(6)]
    assert scheduling.groups(items, 8, 2) == [[0, 1, 2], [3, 4, 5]]
    assert scheduling.groups(items, 8, 4) == [[0, 1], [2, 3], [4, 5]]
    assert scheduling.groups(items, 8, 8) == [[n] for n in range(6)]
    assert scheduling.groups([], 8, 2) == []


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("size", [0, 1, 6, 20])
def test_the_shards_are_the_whole_in_order(size, count):
    parts = [sweeping.shard(range(size), f"{place}/{count}") for place in range(1, count + 1)]
    assert [one for part in parts for one in part] == list(range(size))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_without_a_shard_all_is_done():
    assert sweeping.shard([1, 2], None) == [1, 2]


@pytest.mark.parametrize("given", ["0/2", "3/2", "1", "1/0", "a/b", "-1/2"])
def test_another_text_is_refused(given):
    with pytest.raises(UserError, match=r"type I/N with I from 1 to N, such as 1/4"):
        sweeping.shard([1, 2], given)
