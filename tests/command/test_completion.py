"""`ptrun completion`: the ends of a line, and a script that bash accepts."""

import shutil
import subprocess
import sys

import pytest

from ptrun.command import completion


def ends(line, capsys):
    completion.main(["--line", line])
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("ptrun rep", ["report"]),
        ("ptrun method=ptuning_v2", ["method=ptuning_v2", "method=ptuning_v2_glm"]),
        ("ptrun -m method=dpt,manual", ["method=dpt,manual_prompt"]),
        ("ptrun meth", ["method="]),
        ("ptrun train.batch", ["train.batch_size="]),
        ("ptrun sweep.retry=", ["sweep.retry=none", "sweep.retry=failed"]),
        ("ptrun rerun=t", ["rerun=true"]),
        ("ptrun status --j", ["--json"]),
        ("ptrun seed=", []),
    ],
)
def test_a_line_is_completed(line, found, capsys):
    assert ends(line, capsys) == found


def test_runs_are_completed_where_a_run_is_wanted(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "outputs/runs/ptuning_v2-1234abcd"
    folder.mkdir(parents=True)
    (folder / "result.json").touch()
    monkeypatch.chdir(tmp_path)
    assert ends("ptrun predict outputs/", capsys) == ["outputs/runs/ptuning_v2-1234abcd"]
    assert ends("ptrun list outputs/", capsys) == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash: not installed")
def test_bash_completes_by_the_script(tmp_path):
    (tmp_path / "ptrun").write_text(f'#!/bin/sh\nexec {sys.executable} -m ptrun "$@"\n')
    (tmp_path / "ptrun").chmod(0o755)
    script = (
        "source <(ptrun completion bash); COMP_LINE='ptrun setting=k_1'; COMP_POINT=${#COMP_LINE}; "
        '_ptrun; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=True,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
    )  # fmt: skip
    assert done.stdout.split() == ["k_100", "k_1000"]


def test_zsh_has_a_script_too(capsys):
    completion.main(["zsh"])
    assert "compdef _ptrun ptrun" in capsys.readouterr().out


@pytest.mark.parametrize(
    "name", ["$(touch own)", "`touch own`", "a\nb", "a;b", "a b", "a\x1b[2J", "a'b", "a*", "é"]
)
def test_names_that_a_shell_would_read_are_left_out(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    for folder in (f"runs/{name}", "runs/plain-s1~2"):
        (tmp_path / "outputs" / folder).mkdir(parents=True)
        (tmp_path / "outputs" / folder / "result.json").touch()
    assert completion.completed(["predict", "outputs/"], [], []) == ["outputs/runs/plain-s1~2"]
    (tmp_path / "ptrun_conf" / "method").mkdir(parents=True)
    for option in ("mine", name.replace("/", "")):
        (tmp_path / "ptrun_conf" / "method" / f"{option}.yaml").write_text("{}")
    found = completion.completed(["method="], [], [])
    assert "method=mine" in found and f"method={name}" not in found
