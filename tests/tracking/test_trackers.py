"""The trackers of runs: each shows the rows under the id of the run, several do so at once."""

import json
import sqlite3
from pathlib import Path

import pytest
from hydra.core.global_hydra import GlobalHydra

from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.runs.launch import launch_together
from ptrun.runs.plan import plan
from ptrun.tracking import trackers, wandb
from ptrun.tracking.trackers import Trackers, where
from ptrun.types import RunResult
from tests.tiers import package


def result(status="finished"):
    metrics = {"dev": {"f1": 1.5}, "test": {"f1": 2.5}} if status == "finished" else {}
    return RunResult("r", "g", status, {}, 1, "f1", metrics, {}, {}, {}, None)


def shown(tracker, status="finished"):
    tracker.log({"event": "step", "step": 1, "loss": 3.0})
    tracker.log({"event": "dev", "step": 2, "f1": 1.5, "part": "P19"})
    tracker.finish(result(status) if status else None)


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "outputs" / "sweep" / "run-1"
    made.mkdir(parents=True)
    return made


def test_tensorboard_writes_events(folder, caplog):
    package("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    shown(Trackers(folder, "run-1", {}, tensorboard={}))
    read = EventAccumulator(str(folder / "tensorboard")).Reload()
    found = {tag: read.Scalars(tag)[0] for tag in read.Tags()["scalars"]}
    assert {tag: (one.step, one.value) for tag, one in found.items()} == {
        "step/loss": (1, 3.0),
        "P19/dev/f1": (2, 1.5),
        "final/dev/f1": (2, 1.5),
        "final/test/f1": (2, 2.5),
    }
    assert not caplog.records


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_mlflow_has_one_run_that_goes_on(folder, monkeypatch):
    package("mlflow")
    import mlflow

    monkeypatch.setattr(trackers, "_INTERRUPTED", 60.0)  # its first tables take seconds
    for status in (None, "finished"):  # interrupted first, then to its end
        shown(Trackers(folder, "run-1", {"train": {"lr": 0.1}}, mlflow={"uri": None}), status)
        client = mlflow.MlflowClient(f"sqlite:///{folder.parent / 'mlflow.db'}")
        experiment = client.get_experiment_by_name("sweep")
        (run,) = client.search_runs([experiment.experiment_id])
        assert run.info.status == ("FINISHED" if status else "KILLED")
    assert run.data.params == {"train.lr": "0.1"} and run.data.metrics["final/test/f1"] == 2.5


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_trackio_has_the_rows(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    package("trackio")
    shown(Trackers(folder, "run-1", {}, trackio={"project": "p"}))
    (file,) = (tmp_path / "trackio").glob("*.db")
    with sqlite3.connect(file) as opened:
        rows = [json.loads(row[0]) for row in opened.execute("select metrics from metrics")]
    assert {"step/loss": 3.0} in rows and {"final/dev/f1": 1.5, "final/test/f1": 2.5} in rows


def test_an_unknown_option_and_a_missing_package_are_named(folder, monkeypatch):
    with pytest.raises(UserError, match=r"tracking\.wandb\.projct: unknown\. Options of wandb: pr"):
        Trackers(folder, "r", {}, wandb={"projct": "x"})
    monkeypatch.setattr("ptrun.tracking.trackers.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'ptrun\[mlflow\]'"):
        Trackers(folder, "r", {}, mlflow={})


def test_the_end_of_runs_says_where_their_rows_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    typed = ["tracking=[wandb,tensorboard,mlflow,trackio]"]
    config = compose_run(typed).config["tracking"]
    one, other = Path("o/runs/a"), Path("o/runs/b")
    assert where(config, [one, other]).splitlines() == [
        "tracking=tensorboard: in o/runs/*/tensorboard",
        "tracking=mlflow: in o/runs/mlflow.db",
        "tracking=wandb: offline. Type: wandb sync o/runs/*/wandb/offline-run-*",
        "tracking=trackio: type: trackio show",
    ]
    assert "wandb sync o/runs/a/wandb/offline-run-*\n" in where(config, [one])
    monkeypatch.setenv("WANDB_API_KEY", "x")
    assert where(config, [one]).count("tracking=wandb: the rows were sent\n") == 1
    assert where(compose_run(["tracking=none"]).config["tracking"], [one]) == ""


def test_several_trackers_are_composed(tmp_path):
    GlobalHydra.instance().clear()
    made = compose_run(["tracking=[wandb,mlflow]", "tracking.wandb.project=mine"])
    own = made.config["tracking"]
    assert own["wandb"] == {"project": "mine"} and own["mlflow"] == {"uri": None}
    one, other = (compose_run([f"tracking={name}"]).names["tracking"] for name in ("none", "wandb"))
    assert (one, other) == ("none", "wandb")


class Bad:
    def __init__(self, act):
        self.open, self.log, self.finish = lambda: None, act, act


def raises(*_):
    raise ConnectionError("no route to the host")


@pytest.mark.parametrize(
    ("kind", "told"),
    [("raising", "no route to the host"), ("hanging", "no answer"), ("read-only", "Error")],
)
def test_a_bad_tracker_leaves_the_result_and_one_warning(
    data_dir, tiny_folder, tmp_path, monkeypatch, caplog, kind, told
):
    hanging = Bad(lambda *_: trackers.threading.Event().wait(60))
    monkeypatch.setattr(trackers, "PATIENCE", 0.5)
    monkeypatch.setattr(trackers, "_hanging", [])
    bad = hanging if kind == "hanging" else Bad(raises)
    monkeypatch.setattr(wandb, "TRACKER", lambda *_, project: bad)
    name = "tensorboard" if kind == "read-only" else "wandb"
    if kind == "read-only":
        package("tensorboard")
    given = [f"data_dir={data_dir}", f"backbone.path={tiny_folder('bert')}", "task=sst2"]
    given += ["train.batch_size=2", "train.max_steps=6", "train.eval_every=2", "method.length=3"]
    one = plan(compose_run([*given, f"tracking={name}", f"outputs={tmp_path / 'out'}"]))
    if kind == "read-only":  # root may write anywhere, but a file is no folder
        one.folder.mkdir(parents=True)
        (one.folder / "tensorboard").write_text("")
    (done,) = launch_together([one])
    assert done.status == "finished" and (one.folder / "result.json").is_file()
    (warning,) = [r.getMessage() for r in caplog.records if "tracking=" in r.getMessage()]
    assert warning.startswith(f"tracking={name} is off from here on: ") and told in warning


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """Return a function that writes wandb's settings into a folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "home"))
    monkeypatch.delenv("WANDB_BASE_URL", raising=False)

    def write(folder, text):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "settings").write_text(f"[default]\n{text}\n")

    return write


@pytest.mark.parametrize("folder", ["wandb", ".wandb"])
@pytest.mark.parametrize("line", ["base_url = http://127.0.0.1:9", "api_key = x", "host = y"])
def test_settings_of_the_folder_do_not_choose_the_server(settings, tmp_path, folder, line):
    settings(folder, line)
    with pytest.raises(UserError, match=rf"{folder}/settings sets {line.split()[0]}"):
        wandb.TRACKER(tmp_path, "r", {}, project="p").open()


def test_the_user_s_own_server_is_kept(settings, monkeypatch):
    settings("wandb", "entity = me\nproject = p\nbase_url = https://api.wandb.ai")
    wandb._check_folder(wandb._server())
    settings("dotfiles", "base_url = https://own.server")
    Path("home").symlink_to("dotfiles")
    assert wandb._server() == "https://own.server"
    with pytest.raises(UserError, match="decides where your key goes"):
        wandb._check_folder(wandb._server())
    monkeypatch.setenv("WANDB_BASE_URL", "https://typed.server")
    assert wandb._server() == "https://typed.server"
