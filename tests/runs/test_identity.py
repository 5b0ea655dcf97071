"""The id of a plan: what can change a number beyond rounding is in it, nothing else is."""

import importlib
import sys

import pytest

from ptrun.config.compose import compose_run
from ptrun.runs.plan import plan


def run_id(*overrides):
    return plan(compose_run(["task=pocket_sentiment", *overrides])).run_id


def test_a_device_keeps_the_id_and_a_precision_is_a_run_of_its_own():
    on_cpu = run_id("hardware=gpu", "hardware.device=cpu", "hardware.precision=bf16")
    assert on_cpu == run_id("hardware.precision=bf16") != run_id()
    assert run_id("hardware.precision=fp32") == run_id()


@pytest.fixture
def own_method(tmp_path, monkeypatch):
    """A package with a method of the user's own, which a helper module changes."""
    package = tmp_path / "own_parts"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "helper.py").write_text("FACTOR = 1\n")
    (package / "method.py").write_text(
        "from ptrun.method.prompt_tuning import PromptTuning\n\n\n"
        "class Own(PromptTuning):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    own = tmp_path / "ptrun_conf" / "method" / "own.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("defaults: [prompt_tuning]\n_target_: own_parts.method.Own\n")
    monkeypatch.chdir(tmp_path)
    yield package
    for name in [name for name in sys.modules if name.startswith("own_parts")]:
        del sys.modules[name]


def test_an_edit_of_the_users_own_code_makes_a_new_run(own_method):
    first = run_id("method=own")
    assert first == run_id("method=own") != run_id("method=prompt_tuning")
    (own_method / "helper.py").write_text("FACTOR = 2\n")
    importlib.invalidate_caches()
    assert run_id("method=own") != first
