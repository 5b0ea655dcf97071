"""How far a run is, from its journal, which may be damaged or half written."""

from ptrun.folder import digest
from ptrun.folder.scan import Progress, progress
from ptrun.folder.store import RunStore
from ptrun.tracking.trackers import Trackers


def test_odd_rows_of_a_journal_stop_no_status(tmp_path):
    rows = ["[1]", "null", '{"step": "x"}', '{"step": null}', "\x00", digest.line({"step": 3})]
    (tmp_path / "metrics.jsonl").write_text("\n".join(rows))
    assert progress(tmp_path) == Progress(3)


def test_the_last_step_and_score_are_read(tmp_path):
    scores = [(10, 50.0), (20, 70.0), (30, 60.0)]
    rows = [{"event": "dev", "step": step, "epoch": 1.0, "accuracy": f} for step, f in scores]
    (tmp_path / "metrics.jsonl").write_text("".join(map(digest.line, rows)))
    assert progress(tmp_path) == Progress(30, dev="accuracy 60.0")


def test_steps_in_all_and_the_time_left_are_those_of_the_last_save(tmp_path):
    store = RunStore(tmp_path, {}, Trackers(tmp_path, "r", {}))
    store.log({"event": "step", "step": 30, "loss": 0.5})
    store.draft({}, {"step": 20, "of": 100, "pace": [10, 5.0], "group": []})()
    so_far = progress(tmp_path)
    assert (so_far.step, so_far.of, so_far.seconds_left) == (30, 100, 35.0)
    assert str(so_far) == "step 30 of 100, about 35 s left"


def test_an_older_save_has_no_total(tmp_path):
    store = RunStore(tmp_path, {}, Trackers(tmp_path, "r", {}))
    store.log({"event": "step", "step": 30, "loss": 0.5})
    store.draft({}, {"step": 20})()
    assert str(progress(tmp_path)) == "step 30" and progress(tmp_path).seconds_left is None
