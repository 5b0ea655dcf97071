"""Lists that pages and help texts write by hand name all that the program has."""

import re
from dataclasses import fields
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import yaml

from ptrun.config.arguments import commands, load
from ptrun.config.build import check
from ptrun.config.compose import compose_run
from ptrun.config.paths import conf_dir, options
from ptrun.config.schema import TrainConfig
from ptrun.exporting.export import Kind as Form
from ptrun.task import own
from ptrun.task.table import Kind
from tests.docs.composing import EXTRAS
from tests.docs.pages import pages, source, text

TABLES = {
    "cells": ["CSV", "TSV"], "json": ["JSON"], "parquet": ["parquet"], "arrow": ["Arrow"],
    "excel": ["Excel"],
}  # fmt: skip
BESIDE = "## Beside the authors' code"
WRITTEN = "\n".join(source(page) for page in pages())
"""All pages without what the program fills in."""
UNNAMED = {
    "run": "the command that is meant without one",
    "paper": "the older word for `report --paper`",
}


def comments(name):
    return (conf_dir() / "task" / f"{name}.yaml").read_text("utf-8")


def test_every_text_about_tables_names_all_forms():
    assert TABLES.keys() == {*get_args(Kind)}
    files = {
        "ptrun predict --help": load("predict").PARSER.epilog,
        "ptrun new --help": load("new").PARSER.epilog,
        "csv.yaml": comments("csv"),
        "predict.md": source("howto/predict.md"),
        "data.md": source("howto/data.md"),
    }
    names = [name for form in TABLES.values() for name in form]
    assert {at: lack for at, t in files.items() if (lack := [n for n in names if n not in t])} == {}


@pytest.mark.parametrize("name", ["csv", "hub"])
def test_the_comments_of_a_table_name_its_kinds_and_metrics(name):
    kinds = get_args(get_type_hints(own.Own.__init__)["kind"])
    metrics = {metric for names in own._METRICS.values() for metric in names}
    missing = [word for word in (*kinds, *metrics) if word not in comments(name)]
    assert not missing, ", ".join(missing)


def test_the_page_of_readouts_has_a_section_for_each():
    sections = re.findall(r"^## (\w+)$", source("concepts/readout.md"), re.MULTILINE)
    assert {*sections} == {*options("readout")} - {"auto"} and len(sections) == len({*sections})


def test_each_form_of_an_export_is_in_the_help_and_on_a_page():
    for form in get_args(Form):
        assert f"--to {form}" in WRITTEN and f"--to {form}" in load("export").PARSER.epilog


def test_each_extra_has_a_sentence_where_it_is_needed():
    needed = [extra for extra in EXTRAS if extra not in ("all", "dev")]
    shown = text("reference/extras.md")
    assert [e for e in needed if not re.search(rf"^\| `{e}` \| .+ \| \[", shown, re.M)] == []


@pytest.mark.parametrize("page", [page for page in pages() if BESIDE in source(page)])
def test_keys_that_do_as_the_authors_code_compose(page):
    rows = source(page).partition(BESIDE)[2].partition("\n## ")[0].splitlines()
    readouts = "".join(file.read_text("utf-8") for file in options("readout").values())
    for key in re.findall(r"`(\w[\w.]*=\S+)`", "\n".join(rows)):
        if key.startswith("readout."):
            assert re.search(rf"^{key[8:].partition('=')[0]}:", readouts, re.MULTILINE), key
        else:
            parts = compose_run([f"method={Path(page).stem}", key]).components()
            check({group: part.node for group, part in parts.items()})


def test_texts_of_users_call_no_run_a_member():
    helps = "".join(load(name).PARSER.format_help() for name in commands())
    files = "".join(file.read_text("utf-8") for file in conf_dir().rglob("*.yaml"))
    assert not re.search(r"\bmembers?\b", helps + files)


def test_every_command_and_every_key_of_training_and_tables_is_on_a_page():
    keys = [f"train.{field.name}" for field in fields(TrainConfig)]
    for name in ("csv", "hub"):
        keys += [f"task.{key}" for key in yaml.safe_load(comments(name)) if key != "_target_"]
    keys += [f"ptrun {name}" for name in commands() if name not in UNNAMED]
    missing = [key for key in dict.fromkeys(keys) if not re.search(rf"{key}\b", WRITTEN)]
    assert not missing, ", ".join(missing)
