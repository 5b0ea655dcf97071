"""The label of a pair follows from its facts."""

import pytest

from workshop.pocket.draw import SUBJECT, Draw
from workshop.pocket.pairs import LABELS, Case


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
