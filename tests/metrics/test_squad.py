import pytest

from ptrun.metrics import by_characters, normalise, squad_scores, squad_v2_scores


def test_gold_scores_100():
    golds = [["the Ore", "ore"], ["12 seas"]]
    guesses = ["Ore", "12 seas"]
    assert squad_scores(guesses, golds) == {"em": 100.0, "f1": 100.0}
    scores = squad_v2_scores([*guesses, ""], [*golds, []])
    assert len(scores) == 6 and set(scores.values()) == {100.0}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Red's (Ore)!", "reds ore"),
        ("a.b an-the", "ab anthe"),
        ("theatre another", "theatre another"),
        ("the—ore", "—ore"),
        ("ore—a—tin", "ore— —tin"),
        ("$1,200.50", "120050"),
    ],
)
def test_normalisation_goes_case_punctuation_articles_space(text, expected):
    assert normalise(text) == expected


def test_versions_differ_where_nothing_is_left_after_normalisation():
    assert squad_scores(["the"], [["a"]]) == {"em": 100.0, "f1": 0.0}
    assert squad_v2_scores(["the"], [["a"]])["f1"] == 100.0


def test_always_null_scores_the_share_without_answer_as_the_specs_figure():
    golds = [[]] * 5945 + [["ore"]] * (11873 - 5945)
    scores = squad_v2_scores([""] * 11873, golds)
    assert round(scores["em"], 2) == round(scores["f1"], 2) == 50.07
    assert scores["no_answer_em"] == 100.0 and scores["has_answer_f1"] == 0.0


def test_a_question_without_gold_is_refused_by_version_1():
    with pytest.raises(ValueError, match="prediction 'ore' has no gold answer"):
        squad_scores(["ore"], [[]])


@pytest.mark.parametrize(
    ("prediction", "gold", "f1"),
    [("天氣很好", "天氣好", 600 / 7), ("奧斯陸。", "奧斯陸", 100.0), ("Oslo 市", "oslo市", 100.0)],
)
def test_chinese_answers_are_compared_by_characters(prediction, gold, f1):
    scores = squad_scores([by_characters(prediction)], [[by_characters(gold)]])
    assert scores["f1"] == pytest.approx(f1) and (scores["em"] == 100) is (f1 == 100)
    assert by_characters("An answer: of words.") == "An answer: of words."
