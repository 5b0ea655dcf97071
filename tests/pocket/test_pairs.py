from collections import Counter

import pytest

from ptrun.pocket.draw import Draw
from ptrun.pocket.groups import SUBJECT
from ptrun.pocket.pairs import LABELS, Case
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
    assert set(counts) == set(LABELS)
    assert max(counts.values()) - min(counts.values()) <= 1


def verdict(case, claim, told):
    """Decide the label from the facts alone."""
    if claim in told:
        return "entailment"
    of_subject = case.group.unique[claim.relation] == SUBJECT
    for fact in (f for f in told if f.relation == claim.relation):
        if of_subject and fact.object == claim.object:
            return "contradiction"
        if not of_subject and fact.subject == claim.subject:
            return "contradiction"
    return "neutral"


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("size", [1, 2])
def test_the_facts_of_the_premise_decide_the_label(label, size):
    draw = Draw("test pairs", "test")
    for _ in range(400):
        case = Case(draw)
        claim, told = case.facts(label)
        assert verdict(case, claim, told[:size]) == label


def test_a_hypothesis_is_no_sentence_of_its_premise():
    assert not any(row["hypothesis"] in row["premise"] for row in every("pocket_pairs"))
