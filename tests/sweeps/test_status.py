"""`ptrun status`: states of run folders, by folder, and what is left of a table."""

import json
import re

import pytest
import torch
from rich.console import Console
from safetensors.torch import save_file

from ptrun.command.status import main
from ptrun.folder import digest, lease, scan
from ptrun.sweeps import queue
from ptrun.sweeps.view import as_json, shown

TOLD = {"run_id": "r", "group": "g", "names": {}, "seed": 1, "metric": "accuracy"}
TOLD |= {"learned_parameters": {"total": 1}, "config": {}, "metrics": {"test": {"accuracy": 1.0}}}


@pytest.fixture
def root(tmp_path):
    """Return a folder with a finished, a failed, an interrupted and a held run."""
    for name, file, content in (
        ("one/a", "result.json", {**TOLD, "status": "finished"}),
        ("one/b", "failure.json", {**TOLD, "status": "failed", "reason": "loss nan\nat step 3"}),
        ("two/c", "run.yaml", {}),
        ("two/c~1", "result.json", {**TOLD, "status": "finished"}),
    ):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / file).write_text(json.dumps({**content, "run_id": folder.name.partition("~")[0]}))
    rows = [{"event": "step", "step": 1, "loss": 1.0}, {"event": "dev", "step": 1, "epoch": 1.0}]
    rows[1] |= {"accuracy": 61.25}
    journal = "".join(map(digest.line, [*rows, {"event": "step", "step": 2}]))
    (tmp_path / "two" / "c" / "metrics.jsonl").write_text(journal + '{"event": "st')
    with lease.held(tmp_path / "two" / "d"):
        yield tmp_path


def text(shown):
    console = Console(width=100)
    with console.capture() as captured:
        console.print(shown)
    return captured.get()


def test_every_run_is_known_by_its_folder(root):
    found = {one.folder.name: one for one in scan.runs(root)}
    kinds = {name: one.state.kind for name, one in found.items()}
    assert kinds == {"a": "finished", "b": "failed", "c": "interrupted", "d": "running"}
    assert found["c"].progress == scan.Progress(2, dev="accuracy 61.2")


def test_the_table_counts_and_names_what_is_left(root):
    told = text(shown(root, scan.runs(root), {}))
    assert "1 of 4 runs are finished" in told and "a  finished" not in told
    assert "b  failed: loss nan" in told and "at step 3" not in told
    assert "c  interrupted before its first save  dev accuracy 61.2" in told
    assert "d  running by process" in told


def test_runs_of_a_table_that_have_not_started_are_new(root):
    told = text(shown(root, scan.runs(root), {"one": 3, "two": 2, "three": 4}))
    (line,) = [line for line in told.splitlines() if line.startswith("three")]
    assert line.split() == ["three", "4"] and "1 of 9 runs are finished" in told


def test_runs_that_a_sweep_has_still_to_do_are_counted(root, capsys):
    folders = [root / "one" / name for name in "ab"] + [root / "one" / ("z" * 60)]
    queue.record(root, {"": [*folders, root / "six" / "e"]}, "a.sweep")
    for place, total in ((root, "1 of 6"), (root / "one", "1 of 3")):
        main([str(place)])
        out = capsys.readouterr().out
        assert f"{total} runs are finished" in out and f"{'z' * 60}  new\n" in out
    (root / queue.FOLDER / "a.sweep").write_text("{")
    main([str(root)])
    assert "a.sweep: damaged. Delete it" in capsys.readouterr().err


def test_a_line_is_whole_in_a_pipe(root, capsys):
    main([str(root)])
    out = capsys.readouterr().out
    assert re.search(r"^d  running by process \d+ on \S+ since \S+$", out, re.MULTILINE)


def test_json_has_all_fields(root):
    found = json.loads(as_json(scan.runs(root)))
    assert [one["state"] for one in found] == ["finished", "failed", "interrupted", "running"]
    assert found[2]["step"] == 2 and found[3]["detail"].startswith("process")


def test_a_folder_s_name_is_written_out(tmp_path):
    known = [scan.Known(tmp_path / "g\x1b[2J" / "a\x1b]0;x", scan.RunState("new"))]
    assert "\x1b" not in text(shown(tmp_path, known, {})) and r"g\x1b[2J" in text(
        shown(tmp_path, known, {})
    )


@pytest.mark.parametrize("odd", ["Infinity", '"3"', "[1]", "-1", "1e400"])
def test_a_step_or_score_of_another_type_is_left_out(tmp_path, odd):
    rows = [f'{{"event": "step", "step": {odd}}}', f'{{"event": "dev", "step": 2, "f1": {odd}}}']
    journal = digest.line({"event": "dev", "step": 1, "f1": 50.0}) + "\n".join(rows) + "\n"
    (tmp_path / "metrics.jsonl").write_text(journal)
    assert scan.progress(tmp_path).dev == "f1 50.0"


def test_a_score_before_the_last_save_counts_after_a_long_journal(tmp_path):
    meta = {"step": 1, "of": 9999, "history": [{"step": 1, "accuracy": 91.0}]}
    save_file(
        {"x": torch.zeros(1)},
        tmp_path / "state.safetensors",
        digest.packed({"state": json.dumps(meta)}),
    )
    rows = [{"event": "step", "step": step, "loss": 0.5} for step in range(2, 2000)]
    for score in ("accuracy 91.0", "accuracy 55.0"):
        (tmp_path / "metrics.jsonl").write_text("".join(map(digest.line, rows)))
        assert scan.progress(tmp_path).dev == score
        rows.append({"event": "dev", "step": 2000, "accuracy": 55.0})
