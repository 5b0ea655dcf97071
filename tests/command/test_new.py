"""`ptrun new` writes files that run as they are, with the commands that it prints."""

import shlex
from pathlib import Path

import pytest

from ptrun.command.new import _KIND_NAMES, main
from ptrun.errors import UserError
from ptrun.scaffold.tasks import KINDS


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def everything(folder):
    return sorted(str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file())


def commands(text):
    """Return the commands that were printed, with two steps of training."""
    lines = text.partition("next:\n")[2].replace("max_steps=20", "max_steps=2").splitlines()
    assert len(lines) == 2
    return [shlex.split(line)[1:] for line in lines]


def runs(warm, folder, *arguments):
    """Make a part, and run what is printed without anything on Python's path."""
    made = warm.run(["new", *arguments], folder)
    assert made.returncode == 0, made.stderr
    wrote = {line.split()[1] for line in made.stdout.splitlines() if line.startswith("wrote ")}
    assert wrote == set(everything(folder))
    for line in commands(made.stdout):
        done = warm.run(line, folder)
        assert done.returncode == 0, (line, done.stderr)
    return done


@pytest.mark.slow
def test_a_new_method_trains(warm, project):
    done = runs(warm, project, "method", "my_prefix")
    assert "prompt 8,192" in done.stdout


@pytest.mark.slow
def test_a_new_task_runs(warm, project):
    done = runs(warm, project, "task", "tickets")
    assert "ptuning_v2 · pocket_bert · tickets" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "classification"])
def test_a_task_of_every_other_kind_runs(warm, project, kind):
    runs(warm, project, "task", "mine", "--kind", kind)


@pytest.mark.slow
def test_a_new_backbone_runs(warm, project):
    runs(warm, project, "backbone", "mine")


def test_kinds_of_the_help_are_those_there_are():
    assert set(_KIND_NAMES) == set(KINDS)


def test_files_that_exist_stay_and_nothing_else_is_written(project):
    file = project / "ptrun_parts" / "mine.py"
    file.parent.mkdir()
    file.write_text("kept\n")
    with pytest.raises(UserError, match=r"ptrun_parts/mine.py: exists. Choose another name"):
        main(["method", "mine"])
    assert everything(project) == ["ptrun_parts/mine.py"] and file.read_text() == "kept\n"
    main(["task", "mine"])
    with pytest.raises(UserError, match="task=mine exists"):
        main(["task", "mine"])


def test_a_file_that_cannot_be_written_leaves_none(project):
    Path("ptrun_parts").write_text("a file\n")
    with pytest.raises(OSError, match=r"File exists: .ptrun_parts"):  # told at the edge
        main(["method", "mine"])
    assert everything(project) == ["ptrun_parts"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["method", "mine", "--kind", "pair"], "--kind is for a task"),
        (["task", "mine", "--columns", "a,b"], "--columns names those of --data FILE"),
        (["task", "mine", "--data", "absent.csv"], "absent.csv: no such file"),
        (["setting", "mine"], "invalid choice: 'setting'"),
        (["task", "../mine"], "'../mine' cannot be a name"),
    ],
)
def test_wrong_arguments_are_refused_and_nothing_is_written(project, arguments, told):
    with pytest.raises(UserError, match=told):
        main(arguments)
    assert everything(project) == []
