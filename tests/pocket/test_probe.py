"""Fact probing: objects of one token, subjects of one split, nothing the corpus never told."""

from collections import Counter
from pathlib import Path

import pytest

import ptrun.pocket
from ptrun.pocket.tasks import SPLITS, rows
from tests.pocket.test_tasks import every
from workshop.pocket.world import world

MODEL = Path(ptrun.pocket.__file__).parent / "models" / "pocket_bert"


def test_rows_have_the_fields_of_lama():
    fields = {"id", "predicate_id", "sub_label", "obj_label", "template"}
    assert all(set(row) == fields for row in every("pocket_facts"))
    assert all(
        row["template"].count("[X]") == row["template"].count("[Y]") == 1
        for row in every("pocket_facts")
    )


def test_splits_share_no_subject():
    splits = [{row["sub_label"] for row in rows("pocket_facts", split)} for split in SPLITS]
    assert not splits[0] & splits[1] and not splits[0] & splits[2] and not splits[1] & splits[2]


def test_a_subject_has_one_object_in_each_relation():
    keys = [(row["predicate_id"], row["sub_label"]) for row in every("pocket_facts")]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("split", SPLITS)
def test_every_relation_has_rows_in_every_split(split):
    counts = Counter(row["predicate_id"] for row in rows("pocket_facts", split))
    assert len(counts) == 12 and min(counts.values()) >= 3


def test_hidden_entities_are_not_asked_for():
    hidden = {e.name for e in world().entities() if e.hidden}
    known = {e.name for e in world().entities() if not e.hidden}
    assert not {row["sub_label"] for row in every("pocket_facts")} & (hidden - known)


def test_every_object_is_one_token_of_the_shipped_backbone():
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    words = sorted({row["obj_label"] for row in every("pocket_facts")})
    assert tokenizer.unk_token_id not in tokenizer.convert_tokens_to_ids(words)
    assert all(len(tokenizer.tokenize(word)) == 1 for word in words)
