import pytest

from ptrun.metrics import by_characters, normalise, squad_scores, squad_v2_scores
from tests.metrics import reference
from tests.metrics.corruption import corrupt, phrase, rounds


def questions(rng, *, unanswerable):
    golds = [[phrase(rng) for _ in range(rng.randint(1, 3))] for _ in range(rng.randint(1, 8))]
    golds = [[] if unanswerable and rng.random() < 0.4 else answers for answers in golds]
    guesses = [corrupt(rng, rng.choice(answers or [phrase(rng)])) for answers in golds]
    return ["" if unanswerable and rng.random() < 0.3 else g for g in guesses], golds


def mean(values):
    return 100 * sum(values) / len(values)


def test_gold_scores_100():
    golds = [["the Ore", "ore"], ["12 seas"]]
    guesses = ["Ore", "12 seas"]
    assert squad_scores(guesses, golds) == {"em": 100.0, "f1": 100.0}
    scores = squad_v2_scores([*guesses, ""], [*golds, []])
    assert len(scores) == 6 and set(scores.values()) == {100.0}


@pytest.mark.slow
def test_version_1_equals_the_reference():
    for rng in rounds():
        guesses, golds = questions(rng, unanswerable=False)
        pairs = list(zip(guesses, golds, strict=True))
        em = mean([max(reference.squad_em(p, g) for g in answers) for p, answers in pairs])
        f1 = mean([max(reference.squad_f1(p, g, null=False) for g in a) for p, a in pairs])
        scores = squad_scores(guesses, golds)
        assert scores["em"] == pytest.approx(em, abs=1e-9)
        assert scores["f1"] == pytest.approx(f1, abs=1e-9)


def test_version_2_equals_the_reference_in_every_part():
    for rng in rounds():
        guesses, golds = questions(rng, unanswerable=True)
        rows = []
        for guess, answers in zip(guesses, golds, strict=True):
            texts = [a for a in answers if reference.squad_words(a)] or [""]
            em = max(reference.squad_em(guess, t) for t in texts)
            rows.append(
                (bool(answers), em, max(reference.squad_f1(guess, t, null=True) for t in texts))
            )
        scores = squad_v2_scores(guesses, golds)
        for prefix, kinds in (("", {0, 1}), ("has_answer_", {1}), ("no_answer_", {0})):
            part = [row for row in rows if row[0] in kinds]
            assert (prefix + "em" in scores) == bool(part)
            if part:
                assert scores[prefix + "em"] == pytest.approx(mean([r[1] for r in part]), abs=1e-9)
                assert scores[prefix + "f1"] == pytest.approx(mean([r[2] for r in part]), abs=1e-9)


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
