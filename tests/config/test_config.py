"""Every file composes and binds; a name follows what moves a number and nothing else."""

import inspect

import pytest
from omegaconf.errors import OmegaConfBaseException

from ptrun.config import identity
from ptrun.config.build import check, problems
from ptrun.config.components import component, fits, shipped
from ptrun.config.compose import compose_run
from ptrun.config.explain import explain
from ptrun.config.paths import describe, options
from ptrun.config.schema import GROUPS
from ptrun.errors import UserError
from tests.hashing import told
from tests.tiers import tiered

FILES = [(group, option) for group in GROUPS for option in options(group) if group != "task"]
FILES += [("task", option) for option in ("csv", "hub", "sst2", "multi_ner", "pocket_writing")]
"""The other tasks are read in `tests/task/test_yaml.py`."""


@pytest.mark.parametrize(("group", "option"), tiered(FILES, lambda *option: option in FILES[::8]))
def test_every_option_composes_binds_and_says_what_it_is(group, option):
    composed = compose_run([f"{group}={option}"])
    check({name: composed.config[name] for name in GROUPS if name != "readout"})
    assert composed.names[group] == option
    if composed.readout[0] != "auto":
        check({"readout": composed.config["readout"]})
    assert describe(options(group)[option])


def test_all_problems_of_all_components_come_at_once():
    typed = ["method.lenght=3", "method.length=x", "backbone.dtyp=a", "task.version=1.5"]
    composed = compose_run(typed)
    with pytest.raises(UserError) as raised:
        check({name: composed.config[name] for name in GROUPS if name != "readout"})
    lines = str(raised.value).splitlines()
    assert lines[0].startswith("backbone.dtyp: unknown; did you mean 'dtype'?") or len(lines) == 4
    text = str(raised.value)
    assert "method.lenght: unknown; did you mean 'length'?" in text
    assert "method.length: expected int or null, got 'x'." in text
    assert "task.version: expected int, got 1.5." in text


def test_a_missing_parameter_and_a_bad_target_are_named():
    assert problems("method", {"_target_": "ptrun.method.prompt_tuning.PromptTuning"}) == [
        "method.length: missing. Type method.length=..."
    ]
    with pytest.raises(UserError, match=r"'ptrun.nothing.X', which is not a method of ptrun"):
        problems("method", {"_target_": "ptrun.nothing.X"})
    with pytest.raises(UserError, match="is not a task of ptrun"):
        problems("task", {"_target_": "ptrun.method.prompt_tuning.PromptTuning"})


def test_every_shipped_component_is_a_class_of_its_group():
    for group in GROUPS:
        for path in shipped(group):
            rooms = (f"ptrun.{group}.", f"ptrun.task.{group}.", "ptrun.papers.")
            assert path.startswith(rooms), path
            assert inspect.isclass(component(group, path)), path


def test_a_component_where_none_may_be_is_named():
    node = compose_run(["task=pocket_ner"]).config["task"]
    wrong = {**node, "version": {"x": [{"_target_": "ptrun.task.tagging.Tagging"}]}}
    told = "task.version: a component is not allowed here. Remove its _target_."
    assert told in problems("task", wrong)


FIT = [(1, float), (None, int | None), ([1, 2], list[int]), ({"a": 1}, dict[str, str | int])]
UNFIT = [(True, int), (True, float), ("a", int | None), ([1, "2"], list[int])]
UNFIT += [({"a": 1.5}, dict[str, str | int])]


@pytest.mark.parametrize(
    ("value", "annotation", "expected"),
    [*((*pair, True) for pair in FIT), *((*pair, False) for pair in UNFIT)],
)
def test_values_fit_annotations_as_a_user_would_expect(value, annotation, expected):
    assert fits(value, annotation) is expected


def names_of(*overrides, data="d", weights="w"):
    composed = compose_run(list(overrides))
    content = identity.affecting(composed.config, data, weights)
    return identity.run_id(composed.names, content), identity.group_id(content)


def test_what_moves_a_number_changes_the_run_id_and_nothing_else_does(tmp_path):
    run_id, group = names_of()
    assert run_id.startswith("ptuning_v2-pocket_bert-pocket_ner-full-s1-")
    assert names_of("name=other", "tracking=wandb", "rerun=true", "data_dir=/y") == (run_id, group)
    assert names_of("seed=2")[0] != run_id and names_of("seed=2")[1] == group
    for other in ("method.length=21", "hardware.precision=bf16", "protocol=paper"):
        assert names_of(other)[0] != run_id and names_of(other)[1] != group
    path = f"backbone.path={tmp_path}"
    assert names_of(path)[0].startswith(f"ptuning_v2-{tmp_path.name}-")


def test_the_run_id_does_not_depend_on_the_hash_seed():
    code = "from tests.config.test_config import names_of; print(names_of())"
    assert told(code) == {f"{names_of()}\n"}


def test_the_users_folders_come_first(tmp_path, monkeypatch):
    mine, here = tmp_path / "mine", tmp_path / "here" / "ptrun_conf"
    (mine / "setting").mkdir(parents=True)
    (here / "task").mkdir(parents=True)
    shipped = options("setting")["full"].read_text()
    (mine / "setting" / "own.yaml").write_text(shipped)
    (here / "task" / "pocket_ner.yaml").write_text(options("task")["conll03"].read_text())
    monkeypatch.setenv("PTRUN_CONFIG_DIR", str(mine))
    monkeypatch.chdir(here.parent)
    assert {"full", "own"} <= set(options("setting"))
    composed = compose_run(["setting=own"])
    assert composed.names["setting"] == "own" and composed.config["task"]["name"] == "conll03"


def test_the_environment_names_the_data_folder(monkeypatch):
    monkeypatch.setenv("PTRUN_DATA", "/from/environment")
    assert compose_run().config["data_dir"] == "/from/environment"
    assert compose_run(["data_dir=/typed"]).config["data_dir"] == "/typed"


def test_errors_that_cause_each_other_are_explained():
    first, second = OmegaConfBaseException("first"), ValueError("second")
    first.__cause__, second.__context__ = second, first
    assert str(explain(first, [])) == "first"
