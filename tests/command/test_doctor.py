"""`ptrun doctor`: what this machine has, and a remedy for what it lacks."""

import os
import shutil
from dataclasses import replace

import pytest

from ptrun.backbone import proof
from ptrun.command import doctor
from ptrun.planning import doctor as planning


def check(name):
    """Return the line of a check."""
    (line,) = [line for line in planning.checks() if line.name == name]
    return line


def test_every_check_has_a_line_and_a_note_has_a_remedy(capsys):
    doctor.main([])
    out = capsys.readouterr().out
    names = ("versions", "extras", "devices", "compiler", "memory", "hub cache", "hub", "data")
    assert all(f"  {name} " in out for name in (*names, "outputs"))
    assert all(check.remedy for check in planning.checks() if check.state != "ok")


def test_missing_packages_are_named_with_the_line_that_installs_them(monkeypatch):
    absent = ("peft", "optuna")
    monkeypatch.setattr(planning, "find_spec", lambda name: None if name in absent else name)
    extras = check("extras")
    assert extras.state == "note" and "ptrun search" in extras.says
    assert extras.remedy == "pip install 'ptrun[peft,search]'"


def test_no_compiler_is_no_obstacle(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert check("compiler").remedy == "install gcc"


def test_a_data_folder_that_is_not_there_ends_with_1(monkeypatch, capsys):
    monkeypatch.setenv("PTRUN_DATA", "/nowhere")
    with pytest.raises(SystemExit) as ended:
        doctor.main([])
    assert ended.value.code == 1 and "PTRUN_DATA=/nowhere is no folder" in capsys.readouterr().out


@pytest.mark.skipif(os.geteuid() == 0, reason="user: root may write everywhere")
def test_a_folder_that_cannot_be_written_is_bad(monkeypatch, tmp_path):
    tmp_path.chmod(0o500)
    monkeypatch.chdir(tmp_path)
    assert check("outputs").state == "bad"


def test_a_folder_without_locks_is_bad(monkeypatch, tmp_path):
    def refuse(*_, **__):
        raise OSError(95, "Operation not supported")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(planning.lease, "held", refuse)
    outputs = check("outputs")
    assert outputs.state == "bad" and "not supported" in outputs.says
    assert "outputs=DIR" in outputs.remedy
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_backbone_is_tried_and_the_methods_that_fit_are_named(capsys):
    doctor.main(["backbone=pocket_gpt2"])
    out = " ".join(capsys.readouterr().out.split())
    assert out.count("ok proof") == 4 and "ok methods adapter" in out
    assert "note idpg does not fit IDPG needs an encoder" in out


def test_a_backbone_in_which_prompts_do_not_work_ends_with_1(capsys, monkeypatch):
    read = proof._read

    def unmoved(backbone, inputs, **at):
        return read(backbone, replace(inputs, shift=None), **at)

    monkeypatch.setattr(proof, "_read", unmoved)
    with pytest.raises(SystemExit):
        doctor.main(["backbone=pocket_gpt2"])
    out = capsys.readouterr().out
    assert out.count("BAD ") == 1 and "first in layer 1" in out and "methods" not in out
