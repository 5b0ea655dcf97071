"""A table as data: what is typed for a cell, which runs it has, and what is refused."""

import pytest

from ptrun.errors import UserError
from ptrun.papers.experiment import jobs, load, names, parse, read, scaled

TABLE = """
paper: made
table: up
title: two methods
source: nowhere
protocol: none
precision: fp32
seeds: [1, 2, 3]
shared: protocol=paper
backbone: {small: backbone=bert_base_cased}
method: {FT: method=fine_tuning, PT: method=prompt_tuning, quoted: ""}
setting: {full: setting=full}
task: {RTE: task=rte, CB: "task=cb train.epochs=9", AVG: ""}
extra: [{when: {method: PT, task: [CB]}, add: method.length=7}]
grid: [{when: {method: PT}, over: {train.lr: [1e-3, 1e-2]}}]
not_run: [{when: {method: quoted}, why: another paper's number}]
derived: [{when: {task: AVG}, mean_over: task}]
of: [{when: {method: FT, task: CB}, table: made/other}]
cells:
  - [small, FT, full, RTE, accuracy, 70.1]
  - [small, FT, full, CB, accuracy, 80.0, 1.5]
  - [small, FT, full, CB, f1, 79.0]
  - [small, PT, full, CB, accuracy, 81.0, null, 80.2]
  - [small, PT, full, AVG, accuracy, 75.5]
  - [small, quoted, full, RTE, accuracy, 60.0]
"""


@pytest.fixture
def made(tmp_path):
    file = tmp_path / "up.yaml"
    file.write_text(TABLE)
    return read(file)


def test_a_cell_is_typed_as_its_axes_and_rules_say(made):
    cell = made.cells[3]
    assert cell.key == "small.PT.full.CB" and (cell.std, cell.released) == (None, 80.2)
    assert " ".join(made.overrides(cell)) == (
        "hardware.precision=fp32 protocol=paper backbone=bert_base_cased method=prompt_tuning "
        "setting=full task=cb train.epochs=9 method.length=7"
    )


def test_only_cells_of_its_own_are_run_with_every_searched_value_and_seed(made):
    found = jobs(made, parse(["experiment=made/up", "train.warmup=0.1"]))
    assert [job.key for job in found] == ["small.FT.full.RTE"] * 3 + ["small.PT.full.CB"] * 6
    lines = [" ".join(job.overrides) for job in found[3:]]
    assert sum("train.lr=0.001 seed=2" in line for line in lines) == 1
    assert all(line.endswith("train.warmup=0.1 name=made/up/small.PT.full.CB") for line in lines)


def test_what_is_typed_is_not_searched_and_chooses_seeds(made):
    found = jobs(made, parse(["experiment=made/up", "cell=*PT*", "train.lr=0.5", "seed=7,9"]))
    seeds = [o for job in found for o in job.overrides if o.startswith("seed=")]
    assert seeds == ["seed=7", "seed=9"]
    assert all("train.lr=0.5" in job.overrides for job in found)


def test_a_reason_or_a_mean_has_no_run(made):
    reasons = [made.reason(cell) for cell in made.cells]
    assert reasons[:4] == [None] * 4 and "mean over task" in reasons[4]
    assert reasons[5] == "another paper's number"
    with pytest.raises(UserError, match="unknown"):
        jobs(made, parse(["experiment=made/up", "cell=small.quoted.full.RTE"]))


def test_the_pocket_world_has_something_in_the_place_of_everything(made):
    found = jobs(made, parse(["experiment=made/up", "+scale=pocket"]))
    assert len(found) == 2, "one seed, nothing searched"
    own = found[1].overrides
    assert {"backbone=pocket_bert", "task=pocket_pairs", "train.max_steps=2"} <= set(own)
    assert not any(o.startswith(("method.length", "train.epochs")) for o in own)
    assert own[-1] == "name=pocket/made/up/small.PT.full.CB"
    assert any(o.startswith("+task.source.rows=") for o in own)
    assert not any("rows" in o for o in scaled(["task=multi_ner"], "pocket", None, {})), (
        "it has no source"
    )
    with pytest.raises(UserError, match="no replacement for it"):
        scaled(["task=nothing"], "pocket", None, {})


POCKET = """
pocket:
  minutes: about a minute
  seeds: [4, 5]
  when: {task: [CB, AVG]}
  add: train.epochs=3
  extra: [{when: {method: FT}, add: train.lr=1e-4}]
"""


def test_a_table_with_a_pocket_section_trains_its_rows(tmp_path):
    (tmp_path / "up.yaml").write_text(TABLE + POCKET.lstrip())
    made = read(tmp_path / "up.yaml")
    found = jobs(made, parse(["experiment=made/up", "+scale=pocket"]))
    assert [job.key for job in found] == ["small.FT.full.CB"] * 2 + ["small.PT.full.CB"] * 2
    tuned, prompt = found[0].overrides, found[2].overrides
    assert {"train.epochs=3", "train.lr=1e-4", "seed=4", "protocol=honest"} <= set(tuned)
    assert "train.epochs=9" not in prompt and "train.lr=1e-4" not in prompt
    scaled_table = made.at("pocket")
    assert [cell.at["task"] for cell in scaled_table.cells] == ["CB", "CB", "CB", "AVG"]
    assert scaled_table.searched(scaled_table.cells[2]) == {}, "one configuration a cell"
    assert made.at(None) is made
    with pytest.raises(UserError, match=r"scale=big: unknown\. Allowed: pocket"):
        made.at("big")


POCKET_TABLES = {"dpt", "ptuning", "ptuning_v2", "idpg", "ppt", "peft"}


def test_each_paper_has_a_table_with_rows_at_pocket_scale():
    filled = [load(name) for name in names() if load(name).pocket]
    assert {own.paper for own in filled} == POCKET_TABLES
    for own in filled:
        table = own.at("pocket")
        homes = {table.home(cell)[1] for cell in table.cells if table.reason(cell) is None}
        found = jobs(own, parse([f"experiment={own.name}", "+scale=pocket"]))
        assert homes == {job.key for job in found}


def test_what_is_learned_or_made_first_is_of_the_pocket_world_too():
    typed = ["start=pretrained:multi_ner", "pretraining.train.lr=1e-3", "method.glove=own.txt"]
    typed += ["pretraining.task.source.labeller=run:a", "pretraining.seed=2"]
    own = scaled(typed, "pocket", None, {})
    starts = {"start=pretrained:pocket_multi", "start=pretrained:ppt_nsp"}
    assert {*starts, "method.glove=null"} <= set(own)
    gone = ("pretraining.train.lr", "start=pretrained:multi", "pretraining.seed")
    assert not any(o.startswith(gone) for o in own)


def test_a_cell_of_another_table_lies_under_the_name_it_has_there(tmp_path):
    called = "called: {method: F T, setting: all}"
    (tmp_path / "up.yaml").write_text(TABLE.replace("made/other}", f"made/other, {called}}}"))
    found = read(tmp_path / "up.yaml")
    assert found.home(found.cells[0]) == ("made/up", "small.FT.full.RTE")
    assert found.home(found.cells[1]) == ("made/other", "small.F_T.all.CB")


def test_a_place_may_have_spaces(tmp_path):
    (tmp_path / "up.yaml").write_text(TABLE.replace("quoted", "a paper quoted"))
    found = read(tmp_path / "up.yaml")
    assert found.reason(found.cells[-1]) == "another paper's number"


@pytest.mark.parametrize(
    "line", ["check=maybe", "seeds=some", "seeds=0", "seeds=\u00b2", "report", "-m", "name=own"]
)
def test_a_wrong_value_of_the_command_is_refused(line):
    with pytest.raises(UserError, match=line.removesuffix("own")):
        parse(["experiment=made/up", line])


@pytest.mark.parametrize("line", ["cell=", "seeds=9"])
def test_what_no_cell_or_seed_answers_to_is_refused(made, line):
    with pytest.raises(UserError, match=line):
        jobs(made, parse(["experiment=made/up", line]))


def test_an_unknown_experiment_names_near_ones():
    with pytest.raises(UserError, match="did you mean 'dpt/table1'"):
        load("dpt/tabel1")


@pytest.mark.parametrize("name", names())
def test_every_table_reads_and_is_named_as_its_file(name):
    found = load(name)
    assert found.name == name and found.cells and found.title
    assert found.seeds or all(found.reason(cell) for cell in found.cells)
    assert len({(c.key, c.metric) for c in found.cells}) == len(found.cells)
    rules = [*found.extra, *found.grid, *found.not_run, *found.derived, *found.of, *found.notes]
    whens = [rule.when for rule in rules] + ([found.pocket.when] if found.pocket else [])
    places = [pair for cell in found.cells for pair in cell.at.items()]
    places += [(axis, place) for when in whens for axis in when for place in when[axis]]
    assert all(place in found.axes[axis] for axis, place in places)
