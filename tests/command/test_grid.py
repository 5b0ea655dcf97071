"""`ptrun grid`: every allowed cell keeps the promises, every other is refused by name."""

import pytest

from ptrun import testing
from ptrun.command.grid import main
from ptrun.config.paths import options
from ptrun.errors import UserError
from ptrun.planning.grid import TASKS, methods, refusal, rows

REFUSALS = ("writes no texts", "cannot", "No read-out", "has no", "needs", "alone")
REFUSALS += ("is several tasks", "no such target_modules", "changes it", "examples in train")


KINDS = dict.fromkeys(("pocket_electra", "pocket_glm"), [*TASKS][::2])
KINDS |= dict.fromkeys(("pocket_gpt2", "pocket_t5"), [*TASKS][1::2])
"""Each method answers each kind on two families; ELECTRA stands for BERT too."""


@pytest.mark.slow
@pytest.mark.parametrize("backbone", KINDS)
def test_every_cell_keeps_the_promises_or_is_refused(backbone, data_dir):
    """Word by word: SuperGLUE's two kinds have six made-up rows each, the others pocket tasks."""
    for name in ("record", "wsc"):
        (data_dir / "superglue").mkdir(exist_ok=True)
        (data_dir / name).rename(data_dir / "superglue" / name)
    tried, allowed, tasks = 0, 0, {kind: TASKS[kind] for kind in KINDS[backbone]}
    overrides = [f"data_dir={data_dir}"]
    for name, trial in testing._trials([*rows().values()], [backbone], tasks, overrides):
        tried += 1
        if isinstance(trial, str):
            assert any(word in trial for word in REFUSALS), (name, trial)
        else:
            trial.keeps_promises()
            allowed += 1
    assert tried == len(rows()) * len(tasks) and allowed > 20


@pytest.mark.slow
def test_presets_alone_are_left_out():
    kept = set(methods())
    presets = set(options("method")) - kept
    assert {"idpg_s", "idpg_prompt_tuning_134", "ptuning_lama"} <= presets
    assert {"idpg", "ptuning", "ptuning_v2", "prompt_tuning", "ppt", "compacter"} <= kept
    assert all(any(option.startswith(f"{one}_") for one in kept) for option in presets)
    assert {name.partition(",")[0] for name in rows()} == {
        method for method, run in methods().items() if not run.readout[1].get("pattern")
    }


def test_a_backbone_that_cannot_be_built_is_a_refusal():
    def broken():
        raise UserError("backbone=mine: no such folder\nType another.")

    assert refusal(None, ("head", {}), broken, None) == "backbone=mine: no such folder"


@pytest.mark.slow
def test_a_typed_backbone_takes_the_place_of_the_shipped_ones(capsys):
    main(["backbone=pocket_t5"])
    shown = capsys.readouterr().out
    assert "pocket_t5" in shown and "pocket_bert" not in shown


def test_another_option_is_refused():
    with pytest.raises(UserError, match="ptrun grid method=lora: it takes backbones alone"):
        main(["method=lora"])
