"""PEFT's comparison: all printed rows, what cannot be run, learned parameters, costs and ranks."""

import math
from collections import Counter
from dataclasses import replace

import pytest
import torch
import yaml

from ptrun.config.compose import compose_run
from ptrun.folder import result
from ptrun.method.peft import _REFUSED
from ptrun.papers.experiment import jobs, load, own_cells, parse, read
from ptrun.papers.paper import tabular
from ptrun.papers.rows import rows
from ptrun.papers.running import main
from ptrun.papers.shown import Shown
from tests.papers import small
from tests.readings import method_of
from tests.tiers import package, tiered

TABLE = load("peft/metamathqa")
RUN = {cell.at["method"]: cell for cell in own_cells(TABLE).values()}
FIRST = ("lora/rank32", "prefixtuning/lr_0.001", "prompt_tuning/default", "ptuning/default")
_TYPES = {"adaptionprompt": "ADAPTION_PROMPT"}


@pytest.mark.shared
def test_every_printed_row_has_a_cell_with_its_costs(shared):
    content = yaml.safe_load((shared / "specs/tables/peft_metamathqa.yaml").read_text("utf-8"))
    printed = [dict(zip(content["columns"], row, strict=True)) for row in content["rows"]]
    names = ("forgetting", "train_s", "peak_gib", "learned", "file_bytes")
    wanted = Counter(
        (row["experiment"].replace("llama-3.2-3B-", ""), row["accuracy"], *map(row.get, names))
        for row in printed
    )
    cells = Counter((c.at["method"], c.value, *c.costs.values()) for c in TABLE.cells)
    assert cells == wanted and len(printed) == 63


def test_the_rows_that_cannot_be_run_say_why():
    reasons = {c.at["method"]: reason for c in TABLE.cells if (reason := TABLE.reason(c))}
    assert (len(RUN), len(reasons)) == (49, 14)
    assert "optimizer" in reasons.pop("lora/rank32-lorafa")
    for name, reason in reasons.items():
        family = name.partition("/")[0]
        kind = _TYPES.get(family, family.upper())
        assert reason == f"{kind}: {_REFUSED[kind]}"


@pytest.mark.parametrize("name", tiered(RUN, lambda name: name in FIRST))
def test_a_row_learns_as_many_parameters_as_are_printed(name):
    package("peft")
    overrides = TABLE.overrides(RUN[name])
    with torch.device("meta"):
        method = method_of(compose_run(overrides))
        assert method.learned_parameters()["total"] == RUN[name].costs["parameters"]


def test_the_honest_protocol_has_settings_and_seeds_of_its_own():
    cell = "cell=*.lora_rank32.*"
    (paper,) = jobs(TABLE, parse([f"experiment={TABLE.name}", cell]))
    honest = jobs(TABLE, parse([f"experiment={TABLE.name}", cell, "protocol=honest"]))
    assert len(honest) == 5
    config = compose_run(paper.overrides).config
    assert (config["readout"]["loss_on"], config["train"]["select"]) == ("all", "last")
    config = compose_run(honest[0].overrides).config
    assert (config["readout"]["loss_on"], config["train"]["select"]) == ("answer", "metric")
    assert config["train"]["eval_rows"] is None and config["seed"] == 1


def test_a_rank_is_open_within_the_error_of_the_questions():
    one = {cell.at["method"]: cell for cell in TABLE.cells}["lora/rank32"]
    error = 1.96 * math.sqrt(2 * 0.25 / 1319)
    assert 0.038 < error < 0.0382
    at = [
        replace(one, at={**one.at, "method": m}, value=50 + v)
        for m, v in zip("abc", (3.7, 0, -3.9), strict=True)
    ]
    ranks = replace(TABLE, cells=at).ranks
    assert list(ranks.values()) == [(1, 2), (1, 2), (3, 3)]
    assert TABLE.ranks[TABLE.cells[0].key] == (1, 10)
    assert "431 of 1,953 pairs of rows have no order" in Shown(TABLE, []).undecided
    assert not TABLE.at("pocket").ranks


COSTS = """
costs: [forgetting, seconds, gib, parameters, bytes]
honest: {seeds: [1, 2], add: train.lr=0.5}
"""
ROW = "- [small, FT, full, RTE, acc, 70.1, 1.0, null, 0.05, 942.0, 20.76, 9175040, 36715216]"


def test_ours_stand_beside_the_printed_costs(tmp_path):
    text = small.TABLE.partition("cells:")[0] + COSTS + f"cells:\n  {ROW}\n"
    (tmp_path / "table.yaml").write_text(text)
    experiment, folder = read(tmp_path / "table.yaml"), tmp_path / "made/table1/small.FT.full.RTE"
    small.put(folder, text, 1, 70.0, typed=["forgetting=texts.txt"])
    small.put(folder, text, 2, 71.0, protocol="honest", typed=["train.lr=0.5"])
    small.put(folder, text, 3, 71.0, protocol="honest")  # the paper's rate
    shown = Shown(experiment, rows(experiment, tmp_path))
    (row,) = shown.table.rows
    assert row["Seconds"] == "942" and row["Seconds, ours"] == "3,600"
    assert row["Forgetting"] == "0.0500" and "Forgetting, ours" not in row, "nothing is recorded"
    assert list(shown.rows[0].honest.scores) == [2]
    assert [*shown.rows[0].variants] == ["train.lr=5e-05"]
    place = folder / "-paper-s1"
    cost = {"bytes": 100, "tokens_added": 2.5, "forgetting": {"loss": 1.7, "base": 1.5}}
    run = result.read(place)
    manifest = {**run.manifest, "cost": cost, "peak_memory_mib": 1536}
    result.write(place, replace(run, manifest=manifest))
    shown = Shown(experiment, rows(experiment, tmp_path))
    (row,) = shown.table.rows
    names = ("Forgetting, ours", "GiB, ours", "Bytes, ours", "Tokens added, ours")
    assert [row[name] for name in names] == ["0.2000", "1.5", "100", "2.5"]
    assert '""bytes"": 36715216' in tabular([shown]) and '""bytes"": 100' in tabular([shown])


@pytest.mark.slow
def test_a_pocket_run_counts_but_for_what_is_typed(tmp_path):
    typed = ["readout.max_new_tokens=4", "train.eval_every=2", "train.max_steps=2"]
    main(
        [
            f"experiment={TABLE.name}",
            "+scale=pocket",
            "cell=*zero_init*",
            f"outputs={tmp_path}",
            *typed,
        ]
    )
    (row,) = (row for row in rows(TABLE.at("pocket"), tmp_path) if row.variants)
    (differs,) = row.variants
    assert sorted(differs.split(", ")) == typed
