"""Which runs of a table are done: those whose weights can be had."""

import pytest

from ptrun.errors import UserError
from ptrun.ledger.jobs import Job
from ptrun.ledger.running import main, with_weights


def test_backbones_that_must_be_imported_are_left_out_and_told(tmp_path):
    hub = Job("a", ["backbone=bert_base_cased", "seed=1"])
    twice = [Job("eleven.PT.b", ["backbone=megatron_11b", f"seed={seed}"]) for seed in (1, 2)]
    local = Job("c", ["backbone=megatron_11b", f"backbone.path={tmp_path}"])
    kept, told = with_weights([hub, *twice, local])
    assert kept == [hub, local]
    (line,) = told
    assert "left out: 1 cells of megatron_11b" in line and "ptrun import megatron" in line
    assert line.endswith("in this table: cell='eleven.*' backbone.path=DIR")


def test_a_table_of_such_cells_alone_is_refused(capsys):
    with pytest.raises(UserError, match="none of these cells has its weights here"):
        main(["experiment=ptuning/table2", "cell=megatron-11b*", "check=true"])
    assert "ptrun import megatron FOLDER" in capsys.readouterr().err


@pytest.mark.parametrize("typed", ["backbone=glm_2b", "backbone.path=glm"])
def test_one_backbone_for_cells_of_several_is_refused(typed):
    with pytest.raises(UserError) as caught:
        main(["experiment=ptuning_v2/table2", "check=true", typed])
    said = str(caught.value)
    assert said.startswith(
        f"{typed} would replace the backbone of all these cells: bert_large_cased, glm_10b"
    )
    assert "cell='glm-xxlarge-10b.*'" in said


def test_another_backbone_is_a_variant_by_word_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cell = ["experiment=ptuning_v2/table2", "cell=bert-large.PT-2.*.RTE", "check=true"]
    with pytest.raises(UserError, match="of these cells are of bert_large_cased") as caught:
        main([*cell, "backbone=pocket_bert"])
    assert "Type --as-variant" in str(caught.value)
    main([*cell, "backbone=pocket_bert"], as_variant=True)
    main([*cell, "backbone=bert_large_cased"])
    assert capsys.readouterr().out.count("1 of 1 cells can be run") == 2


def test_one_folder_goes_to_the_cells_of_one_backbone(capsys):
    cell = "cell=glm-xlarge-2b.PT-2.*.CB"
    with pytest.raises(UserError, match="1 cells cannot be run"):
        main(["experiment=ptuning_v2/table2", "check=true", cell, "backbone.path=nowhere"])
    assert "backbone.path=nowhere: no model there" in capsys.readouterr().err
