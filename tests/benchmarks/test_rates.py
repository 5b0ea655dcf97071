"""Default rates of LoRA and adapters: those that `benchmarks/rates.py` found on dev."""

import argparse
import json
import sys
from pathlib import Path

import pytest

from ptrun.config.compose import compose_run

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def rates(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import rates

    yield rates
    for name in ("rates", "running"):
        sys.modules.pop(name, None)


@pytest.fixture
def figures():
    return json.loads((FOLDER / "results" / "rates.json").read_text(encoding="utf-8"))


def test_the_page_is_that_of_the_stored_scores(rates, figures):
    assert (FOLDER / "results" / "rates.md").read_text(encoding="utf-8") == rates.page(figures)


def test_the_defaults_are_the_best_on_dev(rates, figures):
    backbones = {row["backbone"] for row in figures["rows"]}
    assert backbones == {*rates.TASKS}
    for backbone in backbones:
        for method in rates.METHODS:
            line = [f"backbone={backbone}", f"method={method}"]
            assert compose_run(line).train.lr == rates.best(figures["rows"], backbone, method)


def test_a_backbone_without_a_rate_of_its_own_has_that_of_encoders():
    for method in ("lora", "adapter"):
        line = [f"method={method}", "backbone=gpt2", "~backbone.lr"]
        assert compose_run([*line, "+backbone.lr={encoder:3e-4}"]).train.lr == 3e-4


def test_a_default_is_the_lowest_rate_within_a_point_of_the_best(rates):
    rows = [{"backbone": "b", "method": "lora", "dev": {"0.1": 78, "0.2": 79, "0.3": 80}}]
    assert rates.best(rows, "b", "lora") == 0.2


@pytest.mark.slow
def test_a_search_scores_each_rate_on_dev(rates, tmp_path, monkeypatch):
    monkeypatch.setattr(rates, "POCKET", "1e-3,1e-2")
    monkeypatch.setattr(rates, "_TRAIN", ("train.max_steps=1", "train.eval_rows=20"))
    given = argparse.Namespace(outputs=tmp_path, data=None, weights=None)
    scores = rates.search("pocket_bert", "lora", "pocket_sentiment", 1, given)
    assert list(scores) == ["0.001", "0.01"] and all(0 <= s <= 100 for s in scores.values())
