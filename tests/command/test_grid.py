"""`ptrun grid`: every allowed cell trains and answers, every other is refused by name."""

from dataclasses import replace

import pytest

from ptrun import testing
from ptrun.config.paths import options
from ptrun.errors import UserError
from ptrun.planning.grid import BACKBONES, TASKS, cells, methods, refusal, rows

REFUSALS = ("writes no texts", "cannot", "No read-out", "has no", "needs", "alone")
REFUSALS += ("is several tasks", "no such target_modules")


FAMILIES = [name for name in BACKBONES if name not in ("pocket_bert", "pocket_gpt2")]
"""ELECTRA stands for BERT too, GLM for GPT-2."""


@pytest.mark.slow
@pytest.mark.parametrize("backbone", FAMILIES)
def test_every_cell_trains_two_steps_and_answers_or_is_refused(backbone, data_dir):
    """Word by word: SuperGLUE's two kinds have six made-up rows each, the others pocket tasks."""
    for name in ("record", "wsc"):
        (data_dir / "superglue").mkdir(exist_ok=True)
        (data_dir / name).rename(data_dir / "superglue" / name)
    overrides = [f"data_dir={data_dir}"]
    found = list(cells([backbone], overrides=overrides))
    trials = dict(testing._trials([*rows().values()], [backbone], TASKS, overrides))
    assert {cell.kind for cell in found} == set(TASKS) and len(trials) == len(found)
    allowed = 0
    for name, trial in trials.items():
        if isinstance(trial, str):
            assert any(word in trial for word in REFUSALS), (name, trial)
            continue
        member = trial._member(replace(trial.composed.train, max_steps=2, batch_size=4))
        trial._engine(trial.method).fit([member])
        assert member.failed is None, name
        last, metric = member.history[-1], trial.task.metric
        assert float(last[metric if metric in last else "loss"]) <= 100, name  # texts: their loss
        allowed += 1
    assert {cell.method.partition(",")[0] for cell in found} == {
        method for method, node in methods().items() if not node["readout"][1].get("pattern")
    }
    assert allowed > 20, "heads of six kinds for each of the methods that have them"


@pytest.mark.slow
def test_presets_alone_are_left_out():
    kept = set(methods())
    presets = set(options("method")) - kept
    assert {"idpg_s", "idpg_prompt_tuning_134", "ptuning_lama"} <= presets
    assert {"idpg", "ptuning", "ptuning_v2", "prompt_tuning", "ppt", "compacter"} <= kept
    assert all(any(option.startswith(f"{one}_") for one in kept) for option in presets)


def test_a_backbone_that_cannot_be_built_is_a_refusal():
    def broken():
        raise UserError("backbone=mine: no such folder\nType another.")

    assert refusal(None, ("head", {}), broken, None) == "backbone=mine: no such folder"
