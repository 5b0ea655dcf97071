"""Label words become token ids by a stated rule, or are refused with the cure."""

import pytest
import torch

from ptrun.errors import UserError
from ptrun.pattern.pattern import read_pvp, read_pvps
from ptrun.pattern.verbalizer import Verbalizer
from tests.pattern import tokenizers as make

TWO = {"no": ["bad"], "yes": ["good"]}


def test_words_are_read_as_they_stand_after_a_space():
    ids = make.t5().convert_tokens_to_ids
    bound = Verbalizer({"a": ["film"], "b": ["A"]}).bind(make.t5())
    assert bound.ids == (((ids("▁film"),),), ((ids("▁A"),),))
    glued = Verbalizer({"a": ["A"], "b": ["B"]}, glued=True).bind(make.t5())
    assert glued.ids == (((ids("A"),),), ((ids("B"),),))
    assert bound.labels == ("a", "b") and bound.masks == 1
    space = make.roberta().convert_tokens_to_ids("Ġ")
    letters = Verbalizer({"a": ["x"], "b": ["y"]}, "mean").bind(make.roberta())
    assert [words[0][0] for words in letters.ids] == [space, space]


def test_scores_are_means_over_words_and_their_tokens():
    words = {"a": ["good", "not bad"], "b": ["dull"]}
    bound = Verbalizer(words, "mean").bind(make.bert())
    ids = make.bert().convert_tokens_to_ids
    logits = torch.randn(4, 2, 200)
    good, dull = logits[:, 0, ids("good")], logits[:, 0, ids("dull")]
    pair = (logits[:, 0, ids("not")] + logits[:, 1, ids("bad")]) / 2
    assert bound.masks == 2
    torch.testing.assert_close(bound.scores(logits), torch.stack([(good + pair) / 2, dull], 1))
    assert bound.scores(logits.bfloat16()).dtype == torch.float32


def test_the_first_token_may_stand_for_a_word():
    bound = Verbalizer({"a": ["not bad"], "b": ["dull film"]}, "first").bind(make.bert())
    assert bound.masks == 1 and [len(words[0]) for words in bound.ids] == [1, 1]


@pytest.mark.parametrize(
    ("words", "rule", "message"),
    [
        (TWO, "sum", "rule is 'sum'; allowed: single, first, mean"),
        ({}, "single", r"label words are \{\}"),
        (["good"], "single", "expected label:"),
        ({"a": True}, "single", "'a': words are True; expected a list"),
        ({"a": "good"}, "single", r"words are 'good'; expected a list such as \[\"great\""),
        ({"a": []}, "single", "expected a list"),
        ({"a": [True]}, "single", 'True is no text. YAML .* in quotes: "yes"'),
        ({"a": [1]}, "single", "1 is no text"),
        ({False: ["no"]}, "single", "label False: False is no text. YAML"),
        ({"a": [" "]}, "single", "a word is empty"),
    ],
)
def test_words_of_the_wrong_form_are_refused(words, rule, message):
    with pytest.raises(UserError, match=message):
        Verbalizer(words, rule)


@pytest.mark.parametrize(
    ("words", "rule", "message"),
    [
        ({"a": ["not bad"]}, "single", r"'not bad' is 2 tokens \(not bad\), and rule single"),
        ({"a": ["%"]}, "single", "label 'a': .* vocabulary does not know '%'"),
        ({"a": ["good"], "b": ["good"]}, "single", "'good' of 'a' and 'good' of 'b' are both"),
        ({"a": ["good"], "b": ["bad", "good"]}, "single", "collide"),
        ({"a": ["not good"], "b": ["not bad"]}, "first", "both read as not; use other words"),
        ({"a": ["not good"], "b": ["not  good"]}, "mean", "both read as not good"),
    ],
)
def test_words_that_a_vocabulary_cannot_tell_apart_are_refused(words, rule, message):
    with pytest.raises(UserError, match=message):
        Verbalizer(words, rule).bind(make.bert())


def test_words_are_for_the_labels_of_the_task():
    Verbalizer(TWO).check(["yes", "no"])
    with pytest.raises(UserError, match="missing 'maybe', not a label none; the task has 'yes'"):
        Verbalizer(TWO).check(["yes", "no", "maybe"])
    with pytest.raises(UserError, match="missing none, not a label 'no'"):
        Verbalizer(TWO).check(["yes"])


@pytest.mark.parametrize(("before", "glued"), [("?", True), ("? ", False)])
def test_written_out_label_words_are_answered_by_letter(before, glued):
    node = {"pattern": f"{{a}}{before}{{words|letters}} {{mask}}", "words": TWO}
    pvp = read_pvp("unified", node)
    assert pvp.verbalizer() == Verbalizer({"no": ("A",), "yes": ("B",)}, glued=glued)
    texts = [piece.text for piece in pvp.render({"a": "film"})]
    assert texts == ["film", "?", "A", ".", "bad", ".", "B", ".", "good", ".", ""]


def test_options_are_answered_by_sign_and_texts_by_themselves():
    pvp = read_pvp("choice", {"pattern": "{q}{options|numerals}{mask}"})
    assert pvp.verbalizer(options=2) == Verbalizer({"0": ("一",), "1": ("二",)}, glued=True)
    with pytest.raises(UserError, match="pvp choice: 17 items; 1 to 16"):
        pvp.verbalizer(options=17)
    assert read_pvp("copa", {"pattern": "{a} {masks}"}).verbalizer() is None


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ("{a}", "pvp x: '{a}'; expected pattern, and words"),
        ({"words": TWO}, "expected pattern"),
        ({"pattern": "{a}", "word": TWO}, r"\['pattern', 'word'\]; expected pattern"),
        ({"pattern": "{a"}, "pvp x: pattern '{a', character 1"),
        ({"pattern": "{a} {mask}", "words": {"no": [False], "yes": [True]}}, "pvp x: label 'no'"),
        ({"pattern": "{a} {mask}", "words": {"no": ["bad"]}}, "pvp x: label words: missing 'yes'"),
        ({"pattern": "{a} {mask}", "words": TWO, "rule": "mean"}, "rule mean needs {masks}"),
        ({"pattern": "{a} {words|commas}"}, "pvp x: the pattern writes label words out"),
        (
            {"pattern": "{a} {words|commas}", "words": {"no": ["bad", "dull"], "yes": ["good"]}},
            "give each label one",
        ),
    ],
)
def test_a_pvp_that_does_not_hold_together_is_refused(node, message):
    with pytest.raises(UserError, match=message.replace("{", r"\{")):
        read_pvp("x", node, ["no", "yes"])


def test_pvps_are_named():
    with pytest.raises(UserError, match="pvps is 'x'; expected name:"):
        read_pvps("x")
