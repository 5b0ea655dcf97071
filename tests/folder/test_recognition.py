"""A finished run is recognised by its configuration and files, and by nothing less."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import ptrun
from ptrun.config.compose import compose_run
from ptrun.config.paths import conf_dir
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
        done = launching.launch(compose_run(ARGUMENTS))
    return folder, done


@pytest.fixture
def here(trained, monkeypatch):
    folder, done = trained
    monkeypatch.chdir(folder)
    return folder, done


def test_the_result_is_that_of_the_run(here):
    assert finished(compose_run(ARGUMENTS)) == here[1]


@pytest.mark.parametrize("other", ["seed=2", "rerun=true", "train.lr=0.5", "task.pattern=null"])
def test_another_configuration_is_planned(here, other):
    if other == "task.pattern=null":  # typed in full, the same configuration
        assert finished(compose_run((*ARGUMENTS, other))) == here[1]
    else:
        assert finished(compose_run((*ARGUMENTS, other))) is None


def test_changed_data_are_planned(here):
    table = here[0] / "rows.csv"
    state = table.stat()
    table.write_text(ROWS.replace("row 0", "row X"))
    assert finished(compose_run(ARGUMENTS)) is None
    table.write_text(ROWS)
    os.utime(table, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert finished(compose_run(ARGUMENTS)) == here[1]


def record(folder):
    return max((folder / "runs" / ".planned").iterdir(), key=os.path.getmtime)


@pytest.mark.parametrize("content", ["", "[]", "..", "../..", "another-run", "\0"])
def test_a_damaged_record_is_planned(here, content):
    kept = record(here[0]).read_text()
    record(here[0]).write_text(content)
    assert finished(compose_run(ARGUMENTS)) is None
    record(here[0]).write_text(kept)


def test_a_run_without_its_result_is_planned(here):
    result = here[0] / "runs" / "runs" / record(here[0]).read_text() / "result.json"
    os.rename(result, f"{result}~")
    assert finished(compose_run(ARGUMENTS)) is None
    os.rename(f"{result}~", result)


def test_changed_weights_are_planned(here, tmp_path, tiny_folder):
    model = tiny_folder("bert")
    typed = (*ARGUMENTS, f"backbone.path={model}", f"outputs={tmp_path}")
    launching.launch(compose_run(typed))
    assert finished(compose_run(typed)) is not None
    (model / "model.safetensors").touch()
    assert finished(compose_run(typed)) is None


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


OTHERS = tuple(
    os.path.join(folder, "")
    for folder in (
        *map(sysconfig.get_path, ("stdlib", "purelib")),
        Path(ptrun.__file__).parent,
        "/proc",
    )
)
_seen: set[str] | None = None


def see(event, arguments):
    if _seen is not None and event == "open" and isinstance(arguments[0], str | os.PathLike):
        path = os.path.abspath(arguments[0])
        if os.path.isfile(path) and not path.startswith((*OTHERS, str(conf_dir()))):
            _seen.add(path)


sys.addaudithook(see)


@pytest.fixture
def opened():
    """Return the files that Python opens, without those of Python, its packages and ptrun."""
    global _seen
    _seen = set()
    yield _seen
    _seen = None


NER = {"tokens": ["Ann", "is", "here"], "tags": ["B-PER", "O", "O"]}
READ = {
    "a table": ["task=csv", "task.train=rows.csv", "task.text=text", "task.label=label"],
    "numbered tables": ["task=csv", "task.train=rows*.csv", "task.text=text", "task.label=label"],
    "a folder of numbered tables": [
        "task=csv",
        "task.train=all",
        "task.text=text",
        "task.label=label",
    ],
    "rows of a named task": ["task=sst2", "data_dir=data", "readout=verbalizer"],
    "a template": [
        *("task=csv", "task.train=rows.csv", "task.text=text", "task.label=label"),
        "task.pattern=@pattern.yaml",
    ],
    "a model": ["task=pocket_sentiment", "backbone.path=model"],
}


@pytest.mark.parametrize("kind", READ)
def test_the_configuration_names_every_file_that_is_opened(
    tmp_path, monkeypatch, opened, tiny_folder, kind
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text(ROWS)
    for place in ("all", "data/sst2"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "all" / "part-1.csv").write_text(ROWS)
    (tmp_path / "all" / "part-2.csv").write_text(ROWS)
    for split in ("train", "validation", "test"):
        row = json.dumps({"sentence": "a film", "label": 1})
        (tmp_path / "data" / "sst2" / f"{split}.jsonl").write_text(row + "\n")
    words = "{good: [good], bad: [bad]}"
    (tmp_path / "pattern.yaml").write_text(
        f"pattern: '{{text}} It was {{mask}}.'\nwords: {words}\n"
    )
    (tmp_path / "model").symlink_to(tiny_folder("bert"))
    run = compose_run((*READ[kind], "method=prompt_tuning", "train.max_steps=1"))
    opened.clear()
    recognition.key_of(run)
    assert not opened
    launching.planned(run)
    paths = set(map(os.path.realpath, recognition.paths_of(run.config)))
    assert opened and set(map(os.path.realpath, opened)) <= paths
