"""A finished run is recognised by its configuration and files, and by nothing less."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import ptrun
from ptrun.config.explain import composed
from ptrun.folder import recognition
from ptrun.folder.recognition import finished
from ptrun.runs import launch as launching

ROWS = "text,label\n" + "".join(f"row {i} {w},{w}\n" for i in range(12) for w in ("good", "bad"))
ARGUMENTS = ("task=csv", "task.train=rows.csv", "task.text=text", "task.label=label")
ARGUMENTS += ("train.max_steps=1", "method=prompt_tuning", "method.length=2", "outputs=runs")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a folder with a table and a finished run on it."""
    folder = tmp_path_factory.mktemp("recognised")
    (folder / "rows.csv").write_text(ROWS)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = launching.launch(composed(ARGUMENTS))
    return folder, done


@pytest.fixture
def here(trained, monkeypatch):
    folder, done = trained
    monkeypatch.chdir(folder)
    return folder, done


def test_the_result_is_that_of_the_run(here):
    assert finished(composed(ARGUMENTS)) == here[1]


@pytest.mark.parametrize("other", ["seed=2", "rerun=true", "train.lr=0.5", "task.pattern=null"])
def test_another_configuration_is_planned(here, other):
    if other == "task.pattern=null":  # typed in full, the same configuration
        assert finished(composed((*ARGUMENTS, other))) == here[1]
    else:
        assert finished(composed((*ARGUMENTS, other))) is None


def test_changed_data_are_planned(here):
    table = here[0] / "rows.csv"
    state = table.stat()
    table.write_text(ROWS.replace("row 0", "row X"))
    assert finished(composed(ARGUMENTS)) is None
    table.write_text(ROWS)
    os.utime(table, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert finished(composed(ARGUMENTS)) == here[1]


def test_a_new_file_beside_the_data_is_planned(here):
    extra = here[0] / "dev.csv"
    extra.write_text(ROWS)
    assert finished(composed(ARGUMENTS)) is None
    extra.unlink()


@pytest.mark.parametrize("content", ["", "[]", '{"folder": 3}', '{"folder": "x", "files": [1]}'])
def test_a_damaged_record_is_planned(here, content):
    (record,) = (here[0] / "runs" / ".planned").iterdir()
    kept = record.read_text()
    record.write_text(content)
    assert finished(composed(ARGUMENTS)) is None
    record.write_text(kept)


def test_a_run_without_its_result_is_planned(here):
    folder = json.loads(next((here[0] / "runs" / ".planned").iterdir()).read_text())["folder"]
    result = f"{folder}/result.json"
    os.rename(result, f"{result}~")
    assert finished(composed(ARGUMENTS)) is None
    os.rename(f"{result}~", result)


def test_changed_weights_are_planned(here, tmp_path, tiny_folder):
    model = tiny_folder("bert")
    typed = (*ARGUMENTS, f"backbone.path={model}", f"outputs={tmp_path}")
    launching.launch(composed(typed))
    assert finished(composed(typed)) is not None
    (model / "model.safetensors").touch()
    assert finished(composed(typed)) is None


def test_the_command_imports_no_torch(here):
    code = (
        "import sys; from ptrun.cli import main; main(); "
        "assert not {'torch', 'transformers', 'datasets'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *ARGUMENTS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "already finished" in done.stderr and here[1].run_id in done.stdout


def test_data_beside_the_code_count_too(tmp_path):
    code = Path(ptrun.__file__).parent
    beside, inside = f"{code}_data/rows.csv", str(code / "types.py")
    with recognition.opened_files() as opened:
        for path in (beside, inside, f"{sys.prefix}/share/rows.csv"):
            recognition._see("open", (path, "r", 0))
    assert opened == {beside, f"{sys.prefix}/share/rows.csv"}
