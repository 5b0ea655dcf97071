"""`ptrun plan` as it is typed: what it prints, what it refuses, and that nothing is left behind."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ptrun.cli import main
from ptrun.command import plan
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.planning import overview
from ptrun.planning.cards import needed
from ptrun.planning.costs import Costs, planned_on, texts
from ptrun.planning.memory import GIB, Device, card, devices_here, layout_of
from tests.backbone import types

POCKET = ["task=pocket_sentiment", "method=prompt_tuning"]
XXL = ["backbone=t5_xxl_lm_adapt", "task=boolq", "method.length=100", "--length", "64"]
FITS = [*XXL, "method=prompt_tuning", "hardware=gpu", "--device-gib"]


@pytest.fixture
def typed(monkeypatch, capsys, tmp_path):
    """Type `ptrun plan …` and return what it prints, or the error."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def type_(*arguments):
        own = ["ptrun", "plan", *arguments, f"outputs={tmp_path}/outputs"]
        monkeypatch.setattr(sys, "argv", own)
        try:
            main()
        except SystemExit:
            return capsys.readouterr().err
        return capsys.readouterr().out

    return type_


@pytest.mark.parametrize("kind", ["qwen3_moe", "deepseek_v3"])
def test_experts_and_values_of_another_width_are_counted(typed, tmp_path, kind):
    folder = types.make(kind, tmp_path / "model")
    out = typed(f"backbone.path={folder}", "method=lora", "task=pocket_sentiment")
    assert "any of 16 GiB or more" in out and " fits" in out


@pytest.mark.slow
def test_a_sweep_is_shown_as_jobs_with_the_memory_of_each_kind(typed, tmp_path):
    out = typed("seed=1,2", "task=pocket_sentiment", "method=prompt_tuning,ptuning_v2")
    assert out.count(" new ") == 4 and "seed=2 method=ptuning_v2" in out
    assert out.count("\nprompt_tuning · pocket_bert · pocket_sentiment · full\n") == 1
    assert out.count("GiB, ") >= 2 and out.count("GPU (hardware=gpu): any of 16 GiB") == 2
    assert "longest of 256 training examples" in out and "Steps: " in out
    assert not (tmp_path / "outputs").exists()


@pytest.mark.slow
def test_eleven_billion_are_planned_without_weights_or_data(typed):
    out = typed(*FITS, "20")
    assert "409,600" in out and "11,135,332,352" in out
    assert "64 tokens, as requested" in out and "Steps: not known without the data" in out
    first = out.splitlines()[0]
    assert first == ("GPU: 20 GiB with hardware.quantization=int8 hardware.token_budget=512.")
    assert " 24 GiB\n" in out and "computed by a formula" in out


@pytest.mark.slow
def test_what_fits_nowhere_is_said(typed):
    out = typed(*FITS, "1")
    assert out.startswith("GPU: 1 GiB is not enough.")


@pytest.mark.slow
def test_full_tuning_that_one_card_cannot_hold_is_divided(typed):
    line = ["task=rte", "method=fine_tuning", "--length", "64", "hardware=gpu", "--device-gib", "3"]
    out = typed("backbone=bert_large_cased", *line)
    assert out.startswith("GPU: 8 of 3 GiB with hardware=zero1_mp4 hardware.model_parallel=8.")


PRESETS = ["llama3_2_1b", "llama3_1_8b", "t5_xxl_lm_adapt", "qwen3_32b"]
METHODS = ["prompt_tuning", "ptuning_v2", "lora", "fine_tuning"]


@pytest.mark.slow
@pytest.mark.parametrize("backbone", PRESETS)
@pytest.mark.parametrize("method", METHODS)
def test_every_change_that_is_named_fits_when_it_is_typed(typed, backbone, method):
    run = [f"backbone={backbone}", f"method={method}", "task=pocket_sentiment"]
    out = typed(*run)
    first, tried = out.splitlines()[0], 0
    assert first.startswith("GPU (hardware=gpu): ") and "member" not in out
    for part in first.partition(": ")[2].rstrip(".").split("; "):
        size, changes = re.findall(r"(\d+) GiB", part)[0], part.partition(" with ")[2]
        for change in changes.split(" or "):
            words = ["hardware=gpu"] * ("hardware=" not in change) + change.split()
            again = typed(*run, *words, "--device-gib", size).splitlines()[0]
            assert re.fullmatch(rf"GPU: (\d+ of )?{size} GiB as it is\.", again), part
            tried += 1
    assert tried >= len(first.split("; "))


def test_small_models_fit_any_card_and_this_machine_s_comes_first(typed, monkeypatch):
    assert typed(*POCKET).splitlines()[0] == "GPU (hardware=gpu): any of 16 GiB or more."
    gpu = Device("cuda:0 X", "cuda", 8 * GIB, GIB // 2)
    monkeypatch.setattr(overview, "devices_here", lambda _: [*devices_here(None), gpu])
    first = typed(*POCKET, "hardware=gpu").splitlines()[0]
    assert first == "GPU: cuda:0 X is not enough; any of 16 GiB or more."
    assert card(24).total == 24 * GIB and card(24).most == int(0.92 * 24 * GIB)


@pytest.mark.slow
def test_the_page_shows_what_is_printed(typed):
    first, *_ = typed("backbone=llama3_1_8b", "method=prompt_tuning").splitlines()
    page = (Path(__file__).parents[2] / "docs" / "howto" / "gpu.md").read_text("utf-8")
    assert f"```text\n{first}\n```" in page


@pytest.mark.slow
def test_a_probe_takes_real_steps_and_leaves_nothing(typed, tmp_path):
    out = typed(*POCKET, "--probe", "2", "setting=few_shot_32", "train.max_steps=4")
    assert "Probed 2 steps" in out and "All that is left to do" in out
    assert not [f for f in (tmp_path / "outputs").rglob("*") if f.is_file()]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--probe", "1"], "--probe is 1: use 2 or more"),
        (["--length", "many"], "argument --length: invalid int value: 'many'"),
        (["--length", "9999"], "length is 9999; pocket_bert reads"),
        (["--device-gib", "0"], "--device-gib is 0.0: use 1 or more"),
        (["device_gib=80"], "device_gib=80 is an option of the command: type --device-gib 80"),
        (["--cfg"], "unrecognized arguments: --cfg"),
        (["method.lenght=3"], "did you mean 'length'"),
        (["sed=1"], "sed"),
    ],
)
def test_mistakes_end_in_a_line(typed, arguments, said):
    err = typed(*POCKET, *arguments)
    assert said in err and "Traceback" not in err


def test_options_and_overrides_may_be_mixed():
    given = plan.PARSER.parse(["seed=1", "--length", "9", "-m", "--device-gib", "40", "train.lr=1"])
    assert (given.length, given.probe, given.device_gib) == (9, None, 40.0)
    assert given.overrides == ["seed=1", "train.lr=1"]


def test_devices_are_this_machines_and_the_one_asked_about():
    machine, *_, other = devices_here(24)
    assert machine.kind == "cpu" and 0 < machine.free <= machine.total
    assert other == card(24) and other.kind == "cuda"
    assert len(devices_here(None)) < len(devices_here(1))


def test_a_verdict_is_of_free_memory_or_of_all():
    own = Device("x", "cpu", 8 * GIB, 4 * GIB)
    assert own.verdict(2 * GIB) == "fits"
    assert own.verdict(6 * GIB) == "fits if other programs end"
    assert own.verdict(9 * GIB) == "1.0 GiB too much"
    assert own.most == 8 * GIB and Device("x", "cuda", 8 * GIB, 4 * GIB).most == 4 * GIB


def test_steps_follow_from_the_data_where_they_are():
    own = compose_run([*POCKET, "train.epochs=2", "train.batch_size=10"])
    layout = layout_of(own)
    planned = planned_on(own, layout)
    found = texts(planned, None)
    assert found.train and Costs(planned, found).steps() == 2 * -(-found.train // 10)
    with pytest.raises(UserError, match="length is 5000"):
        texts(planned, 5000)
    unknown = compose_run(["backbone=bert_base_cased", "task=rte", "method=prompt_tuning"])
    planned = planned_on(unknown, layout)
    found = texts(planned, None)
    assert found.train is None and Costs(planned, found).steps() is None


def test_all_ranks_share_a_cpu_and_each_has_a_cuda_device():
    run = compose_run([*POCKET, "hardware=zero1", "hardware.ranks=3"])
    layout = layout_of(run, elsewhere=True)
    costs = Costs(planned_on(run, layout), texts(planned_on(run, layout), 16))
    assert needed(costs, layout) == costs.memory(layout).peak
    shared = replace(layout, device="cpu")
    assert needed(costs, shared) == 3 * costs.memory(shared).peak
