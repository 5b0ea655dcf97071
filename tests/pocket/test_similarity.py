from collections import Counter

import pytest

from ptrun.pocket.tasks import SPLITS, rows
from tests.pocket.rows_of import assert_splits, every


@pytest.mark.slow
def test_rows_have_the_fields_and_sizes():
    fields = {"id", "sentence1", "sentence2", "label"}
    assert all(set(row) == fields for row in every("pocket_similarity"))
    assert_splits("pocket_similarity", "sentence1", "sentence2")


@pytest.mark.parametrize("split", SPLITS)
def test_labels_go_from_0_to_5_and_none_prevails(split):
    labels = Counter(row["label"] for row in rows("pocket_similarity", split))
    assert set(labels) == {0.0, 1.67, 2.5, 3.33, 5.0}
    assert max(labels.values()) <= 0.4 * sum(labels.values())


def test_the_two_sentences_differ():
    assert all(row["sentence1"] != row["sentence2"] for row in every("pocket_similarity"))
