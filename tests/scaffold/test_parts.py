"""Names of new parts, and the classes that are written."""

import ast
from pathlib import Path

import pytest

from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.importing.data import write_new
from ptrun.scaffold import tasks


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["", "My", "../x", "a b", "1a", "a-b", "class", "ä", "a/b"])
def test_a_name_that_no_file_can_have_is_refused(name):
    with pytest.raises(UserError, match=r"cannot be a name. Use small letters"):
        tasks.check_name("method", name)


def test_an_option_is_not_hidden_by_a_new_one():
    with pytest.raises(UserError, match=r"task=sst2 exists: .*conf/task/sst2.yaml. Choose"):
        tasks.check_name("task", "sst2")
    write_new(tasks.part("backbone", "mine"))
    with pytest.raises(UserError, match=r"backbone=mine exists: "):
        tasks.check_name("backbone", "mine")
    tasks.check_name("method", "mine")


@pytest.mark.parametrize("example", ["method", "task"])
def test_the_class_has_the_name_of_the_option(example):
    ((file, text),) = tasks._code("my_own_2", example).items()
    assert file == Path("ptrun_parts/my_own_2.py") and f"Example{example.title()}" not in text
    (found,) = [node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    assert found == "MyOwn2"


def test_the_new_backbone_and_cluster_compose():
    write_new({**tasks.part("backbone", "mine"), **tasks.part("cluster", "ours")})
    composed = compose_run(["backbone=mine", "cluster=ours"])
    backbone = composed.components()["backbone"].build()
    assert backbone.name == "mine" and backbone.shape.hidden_size == 128
    default = compose_run(["cluster=default"]).cluster
    assert composed.cluster == default, "the values that are written are the defaults"
