"""The labelled rows: their fields and sizes. They equal the generator's (tests/workshop/pocket)."""

from itertools import combinations

import pytest

from ptrun.pocket.tasks import SPLITS, rows

SIZES = (3000, 400, 600)
FIELDS = {
    "pocket_choice": "id article question options answer",
    "pocket_multispan": "id title context question answers",
    "pocket_ner": "id tokens ner_tags",
    "pocket_pairs": "id premise hypothesis label",
    "pocket_qa": "id title context question answers",
    "pocket_sentiment": "id sentence label",
    "pocket_similarity": "id sentence1 sentence2 label",
    "pocket_srl": "id tokens predicate_index predicate srl_tags",
    "pocket_topics": "id text label",
}
TEXTS = ("article", "context", "premise", "hypothesis", "sentence1", "sentence2", "text")


@pytest.mark.parametrize("task", FIELDS)
def test_rows_have_their_fields_and_sizes_and_no_text_comes_twice(task):
    splits = [rows(task, split) for split in SPLITS]
    assert all(set(row) == set(FIELDS[task].split()) for split in splits for row in split)
    assert tuple(map(len, splits)) == ((2000, 400, 800) if "sentiment" in task else SIZES)
    for field in set(FIELDS[task].split()) & set(TEXTS):
        texts = [row[field] for split in splits for row in split]
        assert len(set(texts)) == len(texts)
    if not set(FIELDS[task].split()) & set(TEXTS):
        told = [{r.get("sentence") or " ".join(r["tokens"]) for r in split} for split in splits]
        assert not any(a & b for a, b in combinations(told, 2))


def test_the_caller_cannot_change_the_rows():
    rows("pocket_ner", "test")[0]["tokens"].append("changed")
    assert rows("pocket_ner", "test")[0]["tokens"][-1] != "changed"


def test_unknown_names_are_answered_with_those_allowed():
    with pytest.raises(ValueError, match="task is 'sst2'; allowed are pocket_ner, pocket_sent"):
        rows("sst2", "train")
    with pytest.raises(ValueError, match="split is 'dev'; allowed are train, validation, test"):
        rows("pocket_ner", "dev")
