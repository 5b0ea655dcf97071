from collections import Counter, defaultdict

import pytest

from ptrun.pocket.tasks import SPLITS, rows
from tests.pocket.rows_of import SIZES, every

ROLES = {"V", "ARG0", "ARG1", "ARG2", "R-ARG0", "R-ARG1"}
ROLES |= {"ARGM-LOC", "ARGM-TMP", "ARGM-MNR", "ARGM-NEG"}


@pytest.mark.slow
def test_rows_have_the_fields_and_sizes():
    fields = {"id", "tokens", "predicate_index", "predicate", "srl_tags"}
    assert all(set(row) == fields for row in every("pocket_srl"))
    assert tuple(len(rows("pocket_srl", split)) for split in SPLITS) == SIZES


def test_splits_share_no_sentence_and_no_row_comes_twice():
    splits = [{" ".join(row["tokens"]) for row in rows("pocket_srl", s)} for s in SPLITS]
    assert not splits[0] & splits[1] and not splits[0] & splits[2] and not splits[1] & splits[2]
    keys = [(*row["tokens"], row["predicate_index"]) for row in every("pocket_srl")]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("split", SPLITS)
def test_tags_are_valid_iob2_with_one_predicate(split):
    seen = set()
    for row in rows("pocket_srl", split):
        assert len(row["tokens"]) == len(row["srl_tags"])
        before = "O"
        for tag in row["srl_tags"]:
            assert not tag.startswith("I-") or before[2:] == tag[2:]
            assert tag == "O" or tag[:2] in ("B-", "I-")
            before = tag
        seen |= {tag[2:] for tag in row["srl_tags"] if tag != "O"}
        assert [i for i, t in enumerate(row["srl_tags"]) if t[2:] == "V"] == [
            row["predicate_index"]
        ]
    assert seen == ROLES


def test_about_half_of_the_rows_share_their_sentence_with_another_predicate():
    tags = defaultdict(list)
    for row in every("pocket_srl"):
        tags[" ".join(row["tokens"])].append(row["srl_tags"])
    counts = Counter(len(found) for found in tags.values())
    assert set(counts) == {1, 2}
    assert 0.4 <= 2 * counts[2] / len(every("pocket_srl")) <= 0.6
    assert all(a != b for a, b in (found for found in tags.values() if len(found) == 2))
