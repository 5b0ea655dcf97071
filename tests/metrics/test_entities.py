import warnings
from itertools import chain

import pytest
import sklearn.metrics
from seqeval.metrics import classification_report, f1_score, precision_score, recall_score
from seqeval.metrics.sequence_labeling import get_entities

from ptrun.metrics import by_label, entities, entity_scores, word_scores
from tests.metrics.corruption import labels, rounds
from tests.tiers import tiered

TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
SCHEMES = {
    "IOB": TAGS,
    "IOBES": [*TAGS, "E-PER", "S-PER", "E-LOC", "S-LOC"],
    "SRL": ["O", "B-V", "B-A0", "I-A0", "B-A1", "I-A1", "B-C-A1", "I-C-A1", "B-R-A0", "B-C-V"],
    "no types": ["O", "B", "I", "E", "S"],
    "malformed": [*TAGS, "B-", "I", "BPER", "I--LOC", "Other", "X-PER", "X", ".", ".-PER", "-LOC"],
}


def well_formed(rng, tags):
    """Return entities and words between them, as the scheme of the tags has them."""
    kinds = sorted({tag[2:] for tag in tags if tag[1:2] == "-"})
    row = []
    for _ in range(rng.randrange(6)):
        kind, size = rng.choice(kinds), rng.randint(1, 3)
        inside = [f"B-{kind}"] + [f"I-{kind}"] * (size - 1)
        if f"E-{kind}" in tags:
            inside = [f"S-{kind}"] if size == 1 else [*inside[:-1], f"E-{kind}"]
        row += inside if rng.random() < 0.5 else ["O"] * size
    return row


@pytest.mark.parametrize("scheme", tiered(SCHEMES, lambda name: name == next(iter(SCHEMES))))
def test_scores_and_entities_equal_seqeval_exactly_on_random_tags(scheme):
    tags = SCHEMES[scheme]
    for rng in rounds():
        golds = [labels(rng, tags, rng.randrange(12)) for _ in range(rng.randint(1, 6))]
        if "B-PER" in tags:
            golds += [well_formed(rng, tags) for _ in range(3)]
        noise = rng.choice([0.0, 0.1, 0.3, 1.0])
        guesses = [[rng.choice(tags) if rng.random() < noise else t for t in row] for row in golds]
        scores = entity_scores(guesses, golds)
        with warnings.catch_warnings(action="ignore"):  # seqeval's, about tags of no scheme
            assert scores["f1"] == 100.0 * f1_score(golds, guesses, zero_division=0)
            assert scores["precision"] == 100.0 * precision_score(golds, guesses, zero_division=0)
            assert scores["recall"] == 100.0 * recall_score(golds, guesses, zero_division=0)
            assert [entities(row) for row in guesses] == [get_entities(row) for row in guesses]


def test_labels_of_words_are_scored_as_sklearn_does():
    names = ["DET", "NOUN", "VERB"]
    for rng in rounds():
        golds = [labels(rng, names, rng.randint(1, 9)) for _ in range(rng.randint(1, 6))]
        guesses = [[rng.choice(names) if rng.random() < 0.3 else t for t in row] for row in golds]
        flat = [*chain(*golds)], [*chain(*guesses)]
        assert word_scores(guesses, golds) == {
            "accuracy": pytest.approx(100 * sklearn.metrics.accuracy_score(*flat)),
            "macro_f1": pytest.approx(100 * sklearn.metrics.f1_score(*flat, average="macro")),
        }
        assert by_label("word_labels", guesses, golds) == by_label("label", *flat[::-1])
    with pytest.raises(ValueError, match="1 predictions for 2 targets"):
        word_scores([["DET"]], [["DET", "NOUN"]])


def test_a_stray_inside_tag_opens_a_chunk():
    assert entity_scores([["O", "I-PER"]], [["O", "B-PER"]])["f1"] == 100.0


def test_srl_tags_count_the_predicate_and_parts_as_their_own_types():
    golds = [["B-A1", "B-V", "B-C-A1", "B-R-A0"]]
    scores = entity_scores([["O", "B-V", "B-C-A1", "B-R-A0"]], golds)
    assert (scores["precision"], scores["recall"]) == (100.0, 75.0)


def test_sentences_of_unequal_length_and_none_at_all_are_refused():
    with pytest.raises(ValueError, match="1 predicted tags for 2 targets"):
        entity_scores([["O"]], [["O", "B-PER"]])
    with pytest.raises(ValueError, match="no targets"):
        entity_scores([], [])


def test_scores_of_types_equal_seqevals_report():
    for rng in rounds():
        golds = [labels(rng, TAGS, rng.randint(1, 9)) for _ in range(rng.randint(1, 6))]
        golds.append(["B-PER"])
        guesses = [[rng.choice(TAGS) if rng.random() < 0.3 else t for t in row] for row in golds]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = classification_report(golds, guesses, output_dict=True)
        for kind, own in by_label("tags", guesses, golds)["scores"].items():
            official = theirs.get(kind)
            if official is None:  # predicted, and never right
                assert own["f1"] == own["count"] == 0
                continue
            assert own["count"] == official["support"]
            assert own["precision"] == pytest.approx(100 * official["precision"], abs=1e-9)
            assert own["recall"] == pytest.approx(100 * official["recall"], abs=1e-9)
            assert own["f1"] == pytest.approx(100 * official["f1-score"], abs=1e-9)
