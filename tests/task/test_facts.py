"""Facts take the searched templates of their relation from a file beside the splits."""

import json

import pytest

from ptrun.config.build import build
from ptrun.errors import UserError
from ptrun.pattern.pattern import read_pvps
from tests.composing import task_node

LPAQA, AUTOPROMPT = "[X], a town in [Y].", "[X]en lamp river [Y]."
ROWS = [
    {"predicate_id": "P1", "label": "country", "lpaqa": LPAQA, "autoprompt": AUTOPROMPT},
    {"predicate_id": "P9", "lpaqa": "[Y] has [X]"},
]


def facts(data_dir, name="lama"):
    return build("task", task_node(name), str(data_dir))


def write(data_dir, rows, folder="lama_trex"):
    """Write templates beside the splits, and return the task over them."""
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (data_dir / folder / "templates.jsonl").write_text(lines)
    return facts(data_dir)


@pytest.fixture
def local(data_dir):
    """Return a data folder where six facts of two relations stand as `lama`'s."""
    (data_dir / "lama").rename(data_dir / "lama_trex")
    return data_dir


def written(task, pvp, example):
    """Return the kinds and texts of a row's pieces."""
    pieces = read_pvps(task.pvps)[pvp].render(example.fields)
    return [piece.text or piece.kind for piece in pieces]


def test_a_fact_has_the_templates_of_its_relation(local):
    first, *_, last = write(local, ROWS).load("train")
    assert first.fields["lpaqa"] == LPAQA and first.fields["autoprompt"] == AUTOPROMPT
    assert first.fields["template"] == "[X] is a town in [Y] ."
    assert set(last.fields) == {"sub_label", "template"}


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("lpaqa", ["Ann", ", a town in", "mask", "."]),
        ("autoprompt", ["Ann", "en lamp river", "mask", "."]),
    ],
)
def test_each_pattern_writes_its_template(local, name, texts):
    task = write(local, ROWS)
    (example, *_) = task.load("test")
    assert written(task, name, example) == texts
    assert written(task, f"{name}_gpt", example) == texts[:-1]


@pytest.mark.parametrize("pvp", ["lpaqa", "autoprompt_gpt"])
def test_a_pattern_without_its_template_says_which_file_to_add(local, pvp):
    task, name = facts(local), pvp.removesuffix("_gpt")
    example = task.load("train")[0]
    missing = rf"no field '{name}'; the example has "
    with pytest.raises(UserError, match=missing):
        written(task, pvp, example)
    assert written(task, "original", example) == ["Ann", "is a town in", "mask", "."]


def test_the_digest_follows_the_templates(local):
    digests = [facts(local).digest(), write(local, ROWS).digest(), write(local, ROWS[:1]).digest()]
    assert len(set(digests)) == 3
    (local / "lama_trex" / "templates.jsonl").unlink()
    assert facts(local).digest() == digests[0]


BAD = [
    ({"lpaqa": "[X] of"}, r"lpaqa '\[X\] of' must contain \[X\] and \[Y\]"),
    ({"autoprompt": None}, "field 'autoprompt' is None; expected text"),
    ({"predicate_id": "P1"}, "relation P1 has two rows; keep one"),
]


@pytest.mark.parametrize(("row", "message"), [*BAD, (None, "no field 'predicate_id'")])
def test_a_bad_template_is_named_with_file_and_line(local, row, message):
    with pytest.raises(UserError, match=rf"templates.jsonl:3: {message}"):
        last = {"lpaqa": LPAQA} if row is None else {"predicate_id": "P2", **row}
        write(local, [*ROWS, last]).load("train")


def test_pocket_facts_need_no_file_and_take_one(local):
    plain = facts(local, "pocket_facts")
    assert set(plain.load("dev")[0].fields) == {"sub_label", "template"}
    write(local, ROWS)
    (local / "lama_trex").rename(local / "pocket_facts")
    assert facts(local, "pocket_facts").load("dev")[0].fields["lpaqa"] == LPAQA
