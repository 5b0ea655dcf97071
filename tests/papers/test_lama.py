"""P-tuning's LAMA files become `task=lama`, its templates and its lists of words."""

import json

import pytest

from ptrun.errors import UserError
from tests.importing.data.original import dump, facts, imported, load, task

TEMPLATES = {"P17": "[X] is in [Y] .", "P103": "The language of [X] is [Y] ."}
ROWS = {
    "train": [("P17", "Oslo", "Norway"), ("P103", "Ann", "Norse"), ("P17", "Rome", "Italy")],
    "dev": [("P17", "Bergen", "Norway"), ("P103", "Bob", "Latin")],
    "test": [("P103", "Eve", "Norse"), ("P17", "Turin", "Italy"), ("P17", "Turin", "Italy")],
}
WORDS = {"bert-base-cased": ["Norway", "Italy"], "gpt2-xl": ["ĠNorway", "ĠItaly", "way"]}


@pytest.fixture
def released(tmp_path):
    """Write facts of two relations, the lists of words and searched templates."""
    rows = {
        split: [
            {"predicate_id": p, "sub_label": x, "obj_label": y, "template": TEMPLATES[p]}
            for p, x, y in own
        ]
        for split, own in ROWS.items()
    }
    folder = tmp_path / "LAMA"
    facts(folder, rows)
    (folder / "29k-vocab.json").write_text(json.dumps(WORDS, indent=1))
    (folder / "34k-vocab.json").write_text(json.dumps({"gpt2-xl": {"ĠNorse": 1, "ĠItaly": 2}}))
    (folder / "single_relations").mkdir()
    return folder


def test_facts_are_read_by_the_task(released, tmp_path, capsys):
    out = imported("lama", released, tmp_path / "out")
    data = task("lama", out)
    train, dev, test = (data.load(part) for part in ("train", "dev", "test"))
    assert [(e.group, e.fields["sub_label"], e.target) for e in train] == [
        ("P17", "Oslo", "Norway"),
        ("P17", "Rome", "Italy"),
        ("P103", "Ann", "Norse"),
    ]
    assert len(dev) == 2 and [e.target for e in test] == ["Italy", "Italy", "Norse"]
    assert train[2].fields["template"] == TEMPLATES["P103"]
    common = task("lama", out, "task.common_vocabulary=true")
    assert [e.target for e in common.load("train")] == ["Norway", "Italy"]
    assert f"{out}/lama_trex/test.jsonl: 3 rows" in capsys.readouterr().out


def test_lists_of_words_are_found_beside_the_splits(released, tmp_path):
    out = imported("lama", released, tmp_path / "out")
    chosen = "task.vocabulary=34k-vocab.json", "task.vocabulary_of=gpt2-xl"
    assert task("lama", out, *chosen).vocabulary == ["Norse", "Italy"]
    (released / "29k-vocab.json").unlink()
    fields = load(imported("lama", released, tmp_path / "more") / "lama_trex" / "train.jsonl")[0]
    assert set(fields) == {"predicate_id", "sub_label", "obj_label", "template"}


def test_searched_templates_are_read_if_they_are_there(released, tmp_path):
    dump(released / "LPAQA_relations.jsonl", [{"relation": "P17", "template": "[X], [Y]"}])
    dump(
        released / "AutoPrompt_relations.jsonl",
        [{"relation": p, "template": "[X]en lamp [Y]"} for p in TEMPLATES],
    )
    first, _, last = task("lama", imported("lama", released, tmp_path / "out")).load("train")
    assert (first.fields["lpaqa"], first.fields["autoprompt"]) == ("[X], [Y]", "[X]en lamp [Y]")
    assert "lpaqa" not in last.fields and last.fields["autoprompt"] == "[X]en lamp [Y]"


def first_fact(folder, **change):
    file = folder / "fact-retrieval/original/P17/train.jsonl"
    row, *others = load(file)
    dump(file, [{**row, **change}, *others])


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda f: first_fact(f, predicate_id="P103"), "P17/train.jsonl:1: predicate_id is 'P103'"),
        (
            lambda f: first_fact(f, predicate_id="../../x"),
            "train.jsonl:1: predicate_id is '../../x'",
        ),
        (lambda f: first_fact(f, obj_label=None), "P17/train.jsonl:1: field 'obj_label' is None"),
        (
            lambda f: dump(f / "relations.jsonl", [{"relation": "P17", "template": "in [Y]"}]),
            r"relations.jsonl:1: template 'in \[Y\]' must contain \[X\] and \[Y\]",
        ),
        (
            lambda f: dump(f / "relations.jsonl", [{"relation": "P17", "template": "[X] [Y]"}]),
            "P103/train.jsonl:1: relations.jsonl has no template of P103",
        ),
        (lambda f: (f / "relations.jsonl").unlink(), "relations.jsonl: no such file"),
        (
            lambda f: (f / "fact-retrieval/original/P103/dev.jsonl").unlink(),
            "P103/dev.jsonl: no such file; each relation needs train, dev, test",
        ),
        (
            lambda f: (f / "fact-retrieval").rename(f / "other"),
            "no folders P17, P19, ... in fact-retrieval/original",
        ),
        (
            lambda f: (f / "29k-vocab.json").write_text('{"a":\n ["b"'),
            "29k-vocab.json: not JSON .* at line 2, column",
        ),
    ],
)
def test_damage_is_named_and_nothing_is_written(released, tmp_path, damage, words):
    damage(released)
    with pytest.raises(UserError, match=words):
        imported("lama", released, tmp_path / "out")
    assert not [file for file in (tmp_path / "out").rglob("*") if file.is_file()]
