from collections import Counter

import pytest

from ptrun.pocket.tasks import SPLITS, rows
from tests.pocket.rows_of import assert_splits, every


@pytest.mark.slow
def test_rows_have_the_fields_and_sizes():
    fields = {"id", "premise", "hypothesis", "label"}
    assert all(set(row) == fields for row in every("pocket_pairs"))
    assert_splits("pocket_pairs", "premise", "hypothesis")


@pytest.mark.parametrize("split", SPLITS)
def test_the_labels_are_even(split):
    counts = Counter(row["label"] for row in rows("pocket_pairs", split))
    assert set(counts) == {"entailment", "neutral", "contradiction"}
    assert max(counts.values()) - min(counts.values()) <= 1


def test_a_hypothesis_is_no_sentence_of_its_premise():
    assert not any(row["hypothesis"] in row["premise"] for row in every("pocket_pairs"))
