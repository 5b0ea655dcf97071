"""What a line of an answer holds."""

from types import SimpleNamespace

import pytest

from ptrun.predicting.answering import Detail, answer_of
from ptrun.types import Example, Prediction


@pytest.mark.parametrize(("value", "text"), [(0, "in Oslo"), (1, "in Rome"), (-1, None)])
def test_the_text_of_an_option_or_none(value, text):
    """A T5 may write a word that is no option: -1 would name the last one."""
    run = SimpleNamespace(task=SimpleNamespace(answer="option"))
    question = SimpleNamespace(id="7", example=Example("7", {"options": ["in Oslo", "in Rome"]}, 0))
    answer = answer_of(run, question, Prediction("7", value), Detail())
    assert answer == {"id": "7", "prediction": value, "option": text}
