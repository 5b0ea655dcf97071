"""Configuration files of somebody else: what they may set, and how they are read."""

import os
import re

import pytest

from ptrun.config import user_files
from ptrun.config.compose import compose_run
from ptrun.config.explain import composed
from ptrun.config.paths import conf_dir, options
from ptrun.errors import UserError
from tests.folder.test_request import BOMB
from workshop.adapt import read

ODD = {
    "a bomb of aliases": (BOMB.encode(), "more than 100,000 values"),
    "an alias of itself": (b"a: &a [*a]\n", "more than 100,000 values"),
    "bytes": (b"\xff\x00\x01", "not readable YAML"),
    "depth": (b"[" * 5_000, "not readable YAML"),
    "length": (b"a: b\n" * 300_000, "larger than 1 MB"),
}
GLOBAL = "# @package _global_\n"
SECRET = "9f2c-secret"
LINE = ("task=pocket_sentiment", "setting=few_shot_32")


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Return a function that writes a file of `ptrun_conf` in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OWN_SECRET", SECRET)

    def write(name, text, root="ptrun_conf"):
        file = tmp_path / root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text) if isinstance(text, str) else file.write_bytes(text)
        return file

    return write


@pytest.mark.parametrize("name", ODD)
def test_a_file_that_is_no_configuration_is_named(project, name):
    content, told = ODD[name]
    project("setting/few_shot_32.yaml", content)
    with pytest.raises(UserError, match=rf"few_shot_32.yaml is not readable YAML: .*{told}|{told}"):
        composed(LINE)


def test_aliases_that_stay_small_are_read(project):
    project("task/mine.yaml", "defaults: [pocket_sentiment]\nmore: {a: &a [x, y], b: *a}\n")
    assert composed(["task=mine"]).config["task"]["more"] == {"a": ["x", "y"], "b": ["x", "y"]}


OUTSIDE = {
    "outputs": ("setting/few_shot_32.yaml", "outputs: elsewhere\nsetting: {}\n", "outputs"),
    "sweep": ("method/ptuning_v2.yaml", "sweep: {'on': slurm}\nmethod: {}\n", "sweep.on"),
    "hydra": (
        "setting/few_shot_32.yaml",
        "hydra: {job: {env_set: {A: b}}}\nsetting: {}\n",
        "hydra",
    ),
}


def test_another_root_is_checked_too(project):
    text = (conf_dir() / "run.yaml").read_text()
    project("run.yaml", text.replace("hydra:", "outputs: elsewhere\n\nhydra:"))
    with pytest.raises(UserError, match=r"run.yaml sets '(outputs|hydra)'"):
        composed(LINE)


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_acts_outside_a_run_is_refused(project, name):
    file, text, key = OUTSIDE[name]
    project(file, GLOBAL + text)
    with pytest.raises(UserError, match=f"ptrun_conf sets ({key})|{key}"):
        composed(LINE)


@pytest.mark.parametrize(
    ("file", "text", "key"),
    [
        ("cluster/default.yaml", "setup: [touch OWN]\n", "cluster.setup"),
        ("cluster/default.yaml", "sbatch: {wrap: x}\n", "cluster.sbatch.wrap"),
        ("tracking/none.yaml", "mlflow: {uri: 'http://127.0.0.1'}\n", "tracking.mlflow.uri"),
        ("tracking/none.yaml", "_target_: ptrun.tracking.wandb.Wandb\n", "tracking._target_"),
    ],
)
def test_a_default_of_a_group_that_acts_outside_is_refused(project, monkeypatch, file, text, key):
    """By name, unless the user allows it, or has the file in the own configuration."""
    written = project(file, text)
    with pytest.raises(UserError, match=f"ptrun_conf sets .*{key.partition('.')[0]}"):
        composed(LINE)
    monkeypatch.setenv("PTRUN_ALLOW_CODE", "true")
    group, *inside = key.split(".")
    value = composed(LINE).config[group]
    for one in inside:
        value = value[one]
    assert value
    monkeypatch.delenv("PTRUN_ALLOW_CODE")
    written.unlink()
    project(file, text, root="home/ptrun/conf")
    assert composed(LINE).config[group]


def test_a_typed_choice_of_a_shipped_option_counts(project):
    """Also where a project's own cluster file sets what acts in a job alone."""
    project("cluster/default.yaml", "partition: long\n")
    made = composed(
        [*LINE, "outputs=mine", "tracking=tensorboard", "cluster.setup=[module load x]"]
    )
    assert made.config["outputs"] == "mine" and made.cluster.partition == "long"
    assert made.cluster.setup == ["module load x"]


LEADS_OUT = {
    "dots": "defaults: [../../hidden/evil]\n",
    "dots inside": "defaults: [/method/../../hidden/evil]\n",
}


@pytest.mark.parametrize("name", LEADS_OUT)
def test_no_file_outside_the_folder_is_read(project, name):
    project("evil.yaml", "_target_: os.mkdir\n", root="hidden")
    project("method/x.yaml", "{}\n")
    project("setting/few_shot_32.yaml", LEADS_OUT[name])
    with pytest.raises(UserError, match=r"leads out of .*ptrun_conf"):
        composed(LINE)


@pytest.mark.parametrize("linked", ["setting", "setting/few_shot_32.yaml"])
def test_a_link_out_of_the_folder_is_not_followed(project, tmp_path, linked):
    project("few_shot_32.yaml", f"{GLOBAL}name: x\n", root="hidden")
    link = tmp_path / "ptrun_conf" / linked
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(tmp_path / "hidden" / ("" if linked == "setting" else "few_shot_32.yaml"))
    with pytest.raises(UserError, match=r"leads out of .*ptrun_conf"):
        composed(LINE)


def test_a_pipe_is_no_option(project, tmp_path):
    (tmp_path / "ptrun_conf" / "setting").mkdir(parents=True)
    os.mkfifo(tmp_path / "ptrun_conf" / "setting" / "mine.yaml")
    with pytest.raises(UserError, match="mine"):
        composed(["setting=mine"])


@pytest.mark.parametrize(
    "text",
    [
        "name: ${oc.env:OWN_SECRET}\n",
        "name: x\nexpected: [{a: 'x/${oc.env:OWN_SECRET}'}]\n",
        "name: ${oc.decode:${oc.env:OWN_SECRET}}\n",
    ],
)
def test_a_variable_of_the_environment_is_not_read(project, monkeypatch, text):
    project("setting/few_shot_32.yaml", f"{GLOBAL}{text}")
    with pytest.raises(UserError, match=r"few_shot_32.yaml sets '.*', which .* may not do") as told:
        composed(LINE)
    assert SECRET not in str(told.value)


def test_no_reference_reaches_the_environment_while_others_files_are_read(project, monkeypatch):
    typed = ["name=${oc.env:OWN_SECRET}"]
    assert compose_run(typed).name == SECRET  # typed, in a folder without files of others
    project("setting/few_shot_32.yaml", "{}\n")
    with pytest.raises(UserError, match="OWN_SECRET is not read while ptrun_conf is not trusted"):
        composed(typed)
    monkeypatch.setenv("PTRUN_ALLOW_CODE", "true")
    assert compose_run(typed).name == SECRET


def test_what_a_file_replaces_is_said_once(project, caplog):
    user_files._tell.cache_clear()
    caplog.set_level("INFO")
    project("protocol/honest.yaml", "_target_: ptrun.task.protocol.Honest\nmine: 3\n")
    for _ in range(2):
        composed(())
    told = [one.getMessage() for one in caplog.records if "replaces" in one.getMessage()]
    assert len(told) == 1 and "ptrun_conf/protocol/honest.yaml replaces ptrun's own" in told[0]
    assert "mine=3 (was None)" in told[0]


def test_an_empty_tracker_is_one_too(project):
    project("tracking/none.yaml", "tensorboard: {}\n")
    with pytest.raises(UserError, match="sets tracking"):
        composed(LINE)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("out: /elsewhere\n", "sets 'out'"),
        ("name: ../../up\n", "sets 'name'"),
        ("name: ${oc.env:OWN_SECRET}\n", "OWN_SECRET"),
        ("[" * 5_000, "not readable YAML"),
    ],
)
def test_options_that_are_read_without_composing_are_checked_too(project, text, told):
    shipped = (conf_dir() / "backbone/pocket_t5.yaml").read_text()
    whole = re.sub(r"(?m)^name: .*\n", "", shipped) if text.startswith("name") else shipped
    project("backbone/pocket_t5.yaml", text if text[0] == "[" else whole + text)
    with pytest.raises(UserError, match=told) as caught:
        read([])
    assert SECRET not in str(caught.value)


def test_a_pipe_of_such_an_option_is_refused(project):
    file = project("backbone/pocket_bert.yaml", "")
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(UserError, match="not a regular file"):
        user_files.load(file.resolve())


def test_a_name_with_control_characters_is_no_option(project, caplog):
    project("task/a\x1b[2Jb.yaml", "# X.\n")
    assert not any("\x1b" in name for name in options("task"))
    assert "\x1b" not in caplog.text
