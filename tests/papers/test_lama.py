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
    names = ("predicate_id", "sub_label", "obj_label", "template")
    rows = {
        split: [dict(zip(names, (*own, TEMPLATES[own[0]]), strict=True)) for own in told]
        for split, told in ROWS.items()
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
    file = folder / TRAIN
    row, *others = load(file)
    dump(file, [{**row, **change}, *others])


TRAIN, DEV = (f"fact-retrieval/original/{part}.jsonl" for part in ("P17/train", "P103/dev"))
HALF, ONE = ([{"relation": "P17", "template": text}] for text in ("in [Y]", "[X] [Y]"))
DAMAGE = {
    "P17/train.jsonl:1: predicate_id is 'P103'": lambda f: first_fact(f, predicate_id="P103"),
    "train.jsonl:1: predicate_id is '../../x'": lambda f: first_fact(f, predicate_id="../../x"),
    "P17/train.jsonl:1: field 'obj_label' is None": lambda f: first_fact(f, obj_label=None),
    r"relations.jsonl:1: template 'in \[Y\]' must": lambda f: dump(f / "relations.jsonl", HALF),
    "relations.jsonl has no template of P103": lambda f: dump(f / "relations.jsonl", ONE),
    "relations.jsonl: no such file": lambda f: (f / "relations.jsonl").unlink(),
    "each relation needs train, dev, test": lambda f: (f / DEV).unlink(),
    "no folders P17, P19, ... in fact": lambda f: (f / "fact-retrieval").rename(f / "other"),
    "not JSON .* at line 2, column": lambda f: (f / "29k-vocab.json").write_text('{"a":\n ["b"'),
}


@pytest.mark.parametrize(("words", "damage"), DAMAGE.items())
def test_damage_is_named_and_nothing_is_written(released, tmp_path, words, damage):
    damage(released)
    with pytest.raises(UserError, match=words):
        imported("lama", released, tmp_path / "out")
    assert not [file for file in (tmp_path / "out").rglob("*") if file.is_file()]
