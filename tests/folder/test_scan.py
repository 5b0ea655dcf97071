"""How far a run is, from its journal, which may be damaged or half written."""

from ptrun.folder import digest
from ptrun.folder.scan import Progress, progress


def test_odd_rows_of_a_journal_stop_no_status(tmp_path):
    rows = ["[1]", "null", '{"step": "x"}', '{"step": null}', "\x00", digest.line({"step": 3})]
    (tmp_path / "metrics.jsonl").write_text("\n".join(rows))
    assert progress(tmp_path) == Progress(3)


def test_the_last_step_and_the_best_score_are_read(tmp_path):
    scores = [(10, 50.0), (20, 70.0), (30, 60.0)]
    rows = [{"event": "dev", "step": step, "epoch": 1.0, "accuracy": f} for step, f in scores]
    (tmp_path / "metrics.jsonl").write_text("".join(map(digest.line, rows)))
    assert progress(tmp_path) == Progress(30, dev="70.0")
