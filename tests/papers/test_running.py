"""Which runs of a table are done: those whose weights and data can be had."""

import json

import pytest

from ptrun.command.import_ import main as import_
from ptrun.errors import UserError
from ptrun.papers import running
from ptrun.papers.cpm2_text import SPECIAL
from ptrun.papers.experiment import TableJob, jobs, load, parse
from ptrun.papers.running import available, main
from tests.conftest import write_tiny
from tests.importing.data.original import imported
from tests.papers.cpm2_shards import untied_t5, write_shards
from tests.sweeps.test_status import TOLD


def test_backbones_that_must_be_imported_are_left_out_and_told(tmp_path):
    hub = TableJob("a", ["backbone=bert_base_cased", "seed=1"])
    twice = [TableJob("eleven.PT.b", ["backbone=megatron_11b", f"seed={seed}"]) for seed in (1, 2)]
    local = TableJob("c", ["backbone=megatron_11b", f"backbone.path={tmp_path}"])
    kept, told = available([hub, *twice, local])
    assert kept == [hub, local]
    (line,) = told
    assert "left out: 1 cells of megatron_11b" in line and "ptrun import megatron" in line
    assert line.endswith("in this table: cell='eleven.*' backbone.path=DIR")


@pytest.mark.parametrize("typed", ["backbone=glm_2b", "backbone.path=glm"])
def test_one_backbone_for_cells_of_several_is_refused(typed):
    with pytest.raises(UserError) as caught:
        main(["experiment=ptuning_v2/table2", "check=true", typed])
    said = str(caught.value)
    assert said.startswith(
        f"{typed} would replace the backbone of all these cells: bert_large_cased"
    )
    assert "cell='glm-xxlarge-10b.*'" in said


def test_another_backbone_goes_to_the_cells_of_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cell = ["experiment=ptuning_v2/table2", "cell=bert-large.PT-2.*.RTE", "check=true"]
    main([*cell, "backbone=pocket_bert"])
    assert "1 of 1 cells can be run" in capsys.readouterr().out


def test_one_folder_goes_to_the_cells_of_one_backbone(capsys):
    cell = "cell=glm-xlarge-2b.PT-2.*.CB"
    with pytest.raises(UserError, match="1 cells cannot be run"):
        main(["experiment=ptuning_v2/table2", "check=true", cell, "backbone.path=nowhere"])
    assert "backbone.path=nowhere: no model there" in capsys.readouterr().err


def test_tasks_of_local_files_alone_are_left_out_where_these_are_absent(tmp_path):
    (tmp_path / "conll12").mkdir()
    hub = TableJob("a", ["task=rte", "seed=1"])
    own = TableJob("b", ["task=csv", "task.train=x.csv"])
    absent = [TableJob(f"d.{i}", ["task=conll05_wsj", f"data_dir={tmp_path}"]) for i in (1, 1, 2)]
    local = TableJob("c", ["task=conll12", f"data_dir={tmp_path}"])
    kept, told = available([hub, own, *absent, local])
    assert kept == [hub, own, local]
    (line,) = told
    assert line.startswith("left out: 2 cells of task=conll05_wsj, whose data are not here: type")
    assert "ptrun import data conll SOURCE --task conll05_wsj" in line
    assert line.endswith("; then add data_dir=DIR")


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (["experiment=ptuning/table2", "cell=megatron-11b*"], "ptrun import megatron FOLDER"),
        (["experiment=ptuning_v2/table3", "cell=*.CoNLL12"], "left out: 12 cells of task=conll12"),
    ],
)
def test_a_table_of_such_cells_alone_is_refused(capsys, typed, told):
    with pytest.raises(UserError, match="none of these cells has its weights and data here"):
        main([*typed, "check=true"])
    assert told in capsys.readouterr().err


def test_minutes_are_those_of_the_runs_that_are_left(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(running, "_check", lambda todo: None)
    table = ["experiment=ppt/table4_en", "+scale=pocket", "check=true"]
    main(table)
    assert "5 cells, 25 runs; about 2 minutes on two cores\n" in capsys.readouterr().out
    (job, *_) = jobs(load("ppt/table4_en"), parse(table))
    (name,) = (o.removeprefix("name=") for o in job.overrides if o.startswith("name="))
    for seed, left in ((1, "24 left, about 2 min on"), (2, "4 left, about 1 min on")):
        folder = tmp_path / "outputs" / name / f"run-s{seed}-0"
        folder.mkdir(parents=True)
        done = TOLD | {"run_id": folder.name, "status": "finished"}
        (folder / "result.json").write_text(json.dumps(done))
        main([*table, *["seed=2"] * (seed == 2)])
        assert left in capsys.readouterr().out


@pytest.mark.slow
def test_a_cell_of_roles_runs_once_its_files_were_imported(tmp_path, capsys):
    for split, word in (("train", "a"), ("devel", "b"), ("test", "c")):
        lines = "".join(f"1 {word}{i} met . ||| B-ARG0 B-V O\n" for i in range(20))
        (tmp_path / f"conll2012.{split}.txt").write_text(lines)
    out = imported("conll", tmp_path, tmp_path / "data", "--task", "conll12")
    typed = [f"backbone.path={write_tiny(tmp_path / 'tiny', 'roberta')}", f"data_dir={out}"]
    typed += [f"outputs={tmp_path / 'outputs'}", "method.length=4", "train.max_steps=1", "seeds=1"]
    main(["experiment=ptuning_v2/table3", "cell=roberta-large.PT-2.*.CoNLL12", *typed])
    told = capsys.readouterr()
    assert "1 cells, 1 runs" in told.out and "1 run: 1 finished" in told.err


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize(
    ("table", "cell", "count"),
    [("table5", "cpm2.*", 4), ("table4_zh", "cpm2.*.C3", 6), ("table4_zh", "cpm2_lm*.C3", 1)],
)
def test_cells_of_cpm2_are_planned_once_its_weights_were_imported(
    shared, tmp_path, monkeypatch, capsys, table, cell, count
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wudao").symlink_to(shared / "data" / "corpus_zh")
    shards = write_shards(untied_t5(), tmp_path / "shards", 2)
    tokens = [*SPECIAL.values(), "▂", "▃", *map(str, range(128))][:128]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens))
    import_(["cpm2", str(shards), "--out", "hf", "--tokenizer", "vocab.txt"])
    typed = [f"cell={cell}", "backbone.path=hf", f"data_dir={shared / 'data'}", "check=true"]
    main([f"experiment=ppt/{table}", *typed])
    assert f"{count} of {count} cells can be run as they are" in capsys.readouterr().out
