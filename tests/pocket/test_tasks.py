"""The labelled rows: of their sizes, balanced, disjoint, well tagged and new in the test split."""

import re
from collections import Counter, defaultdict
from itertools import combinations

import pytest

from ptrun.pocket.tasks import SPLITS, TASKS, rows

SIZES = (3000, 400, 600)
FIELDS = {
    "pocket_choice": "id article question options answer",
    "pocket_multispan": "id title context question answers",
    "pocket_ner": "id tokens ner_tags",
    "pocket_pairs": "id premise hypothesis label",
    "pocket_qa": "id title context question answers",
    "pocket_sentiment": "id sentence label",
    "pocket_similarity": "id sentence1 sentence2 label",
    "pocket_srl": "id tokens predicate_index predicate srl_tags",
    "pocket_topics": "id text label",
}
TEXTS = ("article", "context", "premise", "hypothesis", "sentence1", "sentence2", "text")
QUESTIONS = ("pocket_qa", "pocket_multispan")


def every(task):
    return [row for split in SPLITS for row in rows(task, split)]


@pytest.mark.parametrize("task", FIELDS)
def test_rows_have_their_fields_and_sizes_and_no_text_comes_twice(task):
    splits = [rows(task, split) for split in SPLITS]
    assert all(set(row) == set(FIELDS[task].split()) for split in splits for row in split)
    assert tuple(map(len, splits)) == ((2000, 400, 800) if "sentiment" in task else SIZES)
    for field in set(FIELDS[task].split()) & set(TEXTS):
        texts = [row[field] for split in splits for row in split]
        assert len(set(texts)) == len(texts)
    if not set(FIELDS[task].split()) & set(TEXTS):
        told = [{r.get("sentence") or " ".join(r["tokens"]) for r in split} for split in splits]
        assert not any(a & b for a, b in combinations(told, 2))


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_ids_are_unique(task):
    ids = [row["id"] for row in every(task)]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize(
    ("task", "field", "count", "apart"),
    [
        ("pocket_choice", "answer", 4, 1),
        ("pocket_pairs", "label", 3, 1),
        ("pocket_sentiment", "label", 2, 0),
        ("pocket_topics", "label", 14, 1),
    ],
)
def test_labels_are_even(task, field, count, apart, split):
    counts = Counter(row[field] for row in rows(task, split)).values()
    assert len(counts) == count and max(counts) - min(counts) <= apart


def test_the_texts_of_a_row_differ():
    assert all(row["sentence1"] != row["sentence2"] for row in every("pocket_similarity"))
    assert not any(row["hypothesis"] in row["premise"] for row in every("pocket_pairs"))
    for row in every("pocket_choice"):
        assert len(set(row["options"])) == 4
        assert all(option in row["article"] for option in row["options"])
        assert row["question"].endswith("?") and "{" not in row["question"]


# Questions with one answer, several or none: spans of the context, to the character.


@pytest.mark.slow
@pytest.mark.parametrize("task", QUESTIONS)
def test_offsets_are_exact_and_in_order_and_no_answer_is_in_its_question(task):
    told = 0
    for row in every(task):
        texts, starts = row["answers"]["text"], row["answers"]["answer_start"]
        assert starts == sorted(set(starts))
        for text, start in zip(texts, starts, strict=True):
            assert row["context"][start : start + len(text)] == text
            told += bool(re.search(rf"\b{re.escape(text)}\b", row["question"]))
        assert row["question"].endswith("?") and "{" not in row["question"]
    assert told <= 4  # "Forrest" as the answer of "Who directed New Forrest?"
    lengths = Counter(row["context"].count(". ") + 1 for row in every(task))
    assert set(lengths) <= {3, 4, 5, 6} and len(lengths) >= 3


@pytest.mark.parametrize("split", SPLITS)
def test_a_quarter_has_no_answer_and_several_spans_are_equally_often(split):
    counts = Counter(len(row["answers"]["text"]) for row in rows("pocket_qa", split))
    assert counts == {0: sum(counts.values()) // 4, 1: sum(counts.values()) * 3 // 4}
    counts = Counter(len(row["answers"]["text"]) for row in rows("pocket_multispan", split))
    assert set(counts) == {1, 2, 3, 4} and len(set(counts.values())) == 1


# Tags of tokens: valid IOB2.

ROLES = {"V", "ARG0", "ARG1", "ARG2", "R-ARG0", "R-ARG1"}
ROLES |= {"ARGM-LOC", "ARGM-TMP", "ARGM-MNR", "ARGM-NEG"}


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize(
    ("task", "field", "labels"),
    [("pocket_ner", "ner_tags", {"PER", "LOC", "ORG", "WORK"}), ("pocket_srl", "srl_tags", ROLES)],
)
def test_tags_are_valid_iob2(task, field, labels, split):
    seen = set()
    for row in rows(task, split):
        assert len(row["tokens"]) == len(row[field])
        before = "O"
        for tag in row[field]:
            assert tag == "O" or tag[:2] in ("B-", "I-")
            assert not tag.startswith("I-") or before[2:] == tag[2:]
            before = tag
        seen |= {tag[2:] for tag in row[field] if tag != "O"}
    assert seen == labels


def test_a_row_of_roles_has_one_predicate_and_half_share_their_sentence():
    tags = defaultdict(list)
    for row in every("pocket_srl"):
        tags[" ".join(row["tokens"])].append(row["srl_tags"])
        verbs = [i for i, tag in enumerate(row["srl_tags"]) if tag[2:] == "V"]
        assert verbs == [row["predicate_index"]]
    counts = Counter(len(of_sentence) for of_sentence in tags.values())
    assert set(counts) == {1, 2}
    assert 0.4 <= 2 * counts[2] / len(every("pocket_srl")) <= 0.6
    assert all(len(set(map(tuple, both))) == len(both) for both in tags.values())


def test_the_caller_cannot_change_the_rows():
    rows("pocket_ner", "test")[0]["tokens"].append("changed")
    assert rows("pocket_ner", "test")[0]["tokens"][-1] != "changed"


def test_unknown_names_are_answered_with_those_allowed():
    with pytest.raises(ValueError, match="task is 'sst2'; allowed are pocket_ner, pocket_sent"):
        rows("sst2", "train")
    with pytest.raises(ValueError, match="split is 'dev'; allowed are train, validation, test"):
        rows("pocket_ner", "dev")
