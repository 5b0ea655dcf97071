"""What the program writes into the site agrees with the program."""

import re

import pytest

from ptrun.command.import_ import kinds
from ptrun.config.arguments import commands
from ptrun.config.paths import options
from ptrun.config.schema import GROUPS, LISTED
from ptrun.papers.experiment import load, names
from tests.docs.pages import blocks, expand, pages, source, text

NAMES = [
    page.removeprefix("methods/").removesuffix(".md") for page in pages() if "methods/" in page
]


def test_the_reference_has_every_command():
    shown = text("reference/commands.md")
    names = [*commands(), *(f"import {kind}" for kind in kinds())]
    assert [name for name in names if f"## ptrun {name}\n" not in shown] == []
    assert len(blocks(shown)) == len(names)


def test_the_reference_has_every_option_of_every_group():
    shown = text("reference/groups.md")
    missing = [f"`{g}={o}`" for g in LISTED for o in options(g) if f"`{g}={o}`" not in shown]
    assert not missing


@pytest.mark.slow
def test_the_methods_pages_cover_every_file():
    presets = r"<!-- make: presets \w+ -->"
    marks = [mark for name in NAMES for mark in re.findall(presets, source(f"methods/{name}.md"))]
    covered = {*NAMES, *re.findall(r"method=(\w+)", expand("\n".join(marks)))}
    assert set(options("method")) <= covered


def test_every_key_of_a_run_has_a_meaning():
    rows = [line for line in text("reference/keys.md").splitlines() if line.startswith("| `")]
    assert len(rows) > 40 and [row for row in rows if row.endswith("|  |")] == []


def test_a_paper_page_has_every_table():
    for paper in {name.partition("/")[0] for name in names()}:
        shown = text(f"reproduce/{paper}.md")
        for name in (n for n in names() if n.startswith(f"{paper}/")):
            assert f"## {name.partition('/')[2]}" in shown and load(name).title in shown


def test_a_picture_shows_what_the_method_puts_in():
    from placement import placement

    prefix = placement("pocket_bert", "method=ptuning_v2", "method.length=3", "method.layers=[3,4]")
    assert prefix.text.prefixes == {"self": [0, 0, 3, 3]} and prefix.text.learned == []
    soft = placement("pocket_t5", "method=prompt_tuning", "method.length=3")
    assert soft.text.learned == [0, 1, 2] and soft.decoder.read == [0]
    whole = placement("pocket_gpt2", "method=fine_tuning")
    assert whole.text.tuned and whole.text.read == [len(whole.text.tokens) - 1]
    made = placement("pocket_bert", "method=idpg", "method.length=3")
    assert made.text.edited == [[1, 2, 3]] * 3 + [[]] and made.text.learned == [1, 2, 3]
    assert placement("pocket_gpt2", "method=idpg").startswith("IDPG needs an encoder")


def test_drawings_of_a_page_are_on_it():
    assert text("concepts/index.md").count("<svg") == 3
    assert "make:" not in text("concepts/index.md")


@pytest.mark.parametrize("group", [g for g in GROUPS if g != "method"])
def test_the_reference_has_the_parameters_of_a_group(group):
    assert f"## {group}" in source("reference/parameters.md")


def test_a_sign_of_less_begins_no_tag_outside_of_code():
    from text import cell

    assert cell("a <b>  `<c>` | d") == "a &lt;b> `<c>` \\| d"
