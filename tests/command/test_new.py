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


SAYS = {"method": "prompt 8,192", "classification": "ptuning_v2 · pocket_bert · mine"}


@pytest.mark.slow
@pytest.mark.parametrize("part", ["method", "backbone", *KINDS])
def test_a_new_part_runs(warm, project, part):
    """What is printed, with two steps of training; the check of a method and of one task."""
    line = [part, "mine"] if part not in KINDS else ["task", "mine", "--kind", part]
    made = warm.run(["new", *line], project)
    assert made.returncode == 0, made.stderr
    wrote = {line.split()[1] for line in made.stdout.splitlines() if line.startswith("wrote ")}
    assert wrote == set(everything(project))
    printed = made.stdout.partition("next:\n")[2].replace("max_steps=20", "max_steps=2")
    check, train = printed.splitlines()
    for line in (check, train) if part in SAYS else (train,):
        done = warm.run(shlex.split(line)[1:], project)
        assert done.returncode == 0, (line, done.stderr)
    assert SAYS.get(part, "") in done.stdout


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
