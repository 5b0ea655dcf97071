"""Which runs of a table are done: those whose weights can be had."""

import pytest

from ptrun.errors import UserError
from ptrun.ledger.jobs import Job
from ptrun.ledger.running import main, with_weights


def test_backbones_that_must_be_imported_are_left_out_and_told(tmp_path):
    hub = Job("a", ["backbone=bert_base_cased", "seed=1"])
    twice = [Job("b", ["backbone=megatron_11b", f"seed={seed}"]) for seed in (1, 2)]
    local = Job("c", ["backbone=megatron_11b", f"backbone.path={tmp_path}"])
    kept, told = with_weights([hub, *twice, local])
    assert kept == [hub, local]
    (line,) = told
    assert "left out: 1 cells of megatron_11b" in line and "ptrun import megatron" in line


def test_a_table_of_such_cells_alone_is_refused(capsys):
    with pytest.raises(UserError, match="none of these cells has its weights here"):
        main(["experiment=ptuning/table2", "cell=megatron-11b*", "check=true"])
    assert "ptrun import megatron FOLDER" in capsys.readouterr().err
