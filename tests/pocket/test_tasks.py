"""The labelled rows: stable, balanced, disjoint, well tagged and new enough in the test split."""

from collections import Counter

import pytest

from ptrun.pocket.tasks import SPLITS, TASKS, rows


def text_of(row: dict) -> str:
    return row.get("sentence") or " ".join(row["tokens"])


@pytest.mark.parametrize(
    ("task", "sizes"), [("pocket_sentiment", (2000, 400, 800)), ("pocket_ner", (3000, 400, 600))]
)
def test_splits_have_their_sizes_and_share_no_text(task, sizes):
    texts = [{text_of(row) for row in rows(task, split)} for split in SPLITS]
    assert tuple(map(len, texts)) == sizes
    assert not texts[0] & texts[1] and not texts[0] & texts[2] and not texts[1] & texts[2]


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_ids_are_unique(task):
    ids = [row["id"] for split in SPLITS for row in rows(task, split)]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("split", SPLITS)
def test_half_of_the_opinions_are_positive(split):
    labels = Counter(row["label"] for row in rows("pocket_sentiment", split))
    assert set(labels) == {"negative", "positive"}
    assert labels["negative"] == labels["positive"]


@pytest.mark.parametrize("split", SPLITS)
def test_tags_are_valid_iob2(split):
    for row in rows("pocket_ner", split):
        assert len(row["tokens"]) == len(row["ner_tags"])
        before = "O"
        for tag in row["ner_tags"]:
            assert tag == "O" or tag[2:] in {"PER", "LOC", "ORG", "WORK"}
            assert not tag.startswith("I-") or before[2:] == tag[2:]
            before = tag


def test_named_entities_stand_in_sentences_of_useful_length():
    train = rows("pocket_ner", "train")
    assert 14 <= sum(len(row["tokens"]) for row in train) / len(train) <= 20


def test_a_capital_does_not_make_an_entity():
    tagged = [
        (token, tag)
        for row in rows("pocket_ner", "test")
        for token, tag in zip(row["tokens"][1:], row["ner_tags"][1:], strict=True)
        if token[0].isupper()
    ]
    assert sum(tag == "O" for _, tag in tagged) / len(tagged) >= 0.08


def test_the_caller_cannot_change_the_rows():
    rows("pocket_ner", "test")[0]["tokens"].append("changed")
    assert rows("pocket_ner", "test")[0]["tokens"][-1] != "changed"


def test_unknown_names_are_answered_with_those_allowed():
    with pytest.raises(ValueError, match="task is 'sst2'; allowed are pocket_ner, pocket_sent"):
        rows("sst2", "train")
    with pytest.raises(ValueError, match="split is 'dev'; allowed are train, validation, test"):
        rows("pocket_ner", "dev")
