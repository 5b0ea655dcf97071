"""Score simple baselines on the pocket tasks: `python benchmarks/pocket_baselines.py`.

Each task has one or two: bags of words with logistic regression, word overlap, majorities,
positions, or a gazetteer of the training mentions (longest match, most frequent type). Writes
results/pocket_baselines.json.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from ptrun.pocket.tasks import VERSION, rows

Row = dict[str, Any]
Gazetteer = dict[tuple[str, ...], str]
WORD = re.compile(r"\w+|[^\w\s]")
BETWEEN = ("was", "did", "not", "wanted", "to")
BREAKS = (
    ",",
    ".",
    "and",
    "that",
    "who",
    "but",
    *BETWEEN,
    *["by", "in", "on", "at", "near", "with", "last"],
)
NAME = re.compile(r"[A-Z]\w+(?: (?:& )?[A-Z]\w+)*")


def words(text: str) -> list[str]:
    """Return the words of a text without their capitals."""
    return WORD.findall(text.lower())


def classify(task: str, features: Callable[[Row], list[str]], strength: float = 1.0) -> float:
    """Return test accuracy of logistic regression over counts of a row's features."""
    train, test = rows(task, "train"), rows(task, "test")
    model = _regression(strength).fit(map(features, train), [row["label"] for row in train])
    return float(model.score(list(map(features, test)), [row["label"] for row in test]))


def _regression(strength: float, **counted: Any) -> Any:
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    regression = LogisticRegression(C=strength, max_iter=3000)
    return make_pipeline(CountVectorizer(**(counted or {"analyzer": list})), regression)


def bag_of_words(longest: int, strength: float) -> float:
    """Return test accuracy of logistic regression over counts of 1..`longest` words."""
    model = _regression(strength, ngram_range=(1, longest), token_pattern=WORD.pattern)
    train, test = rows("pocket_sentiment", "train"), rows("pocket_sentiment", "test")
    model.fit([row["sentence"] for row in train], [row["label"] for row in train])
    return float(model.score([row["sentence"] for row in test], [row["label"] for row in test]))


def topic_words(row: Row) -> list[str]:
    """Return the words of a topic row."""
    return words(row["text"])


def pair_words(row: Row) -> list[str]:
    """Return the words of both sides, marked p (premise) and h (hypothesis)."""
    return [f"p {w}" for w in words(row["premise"])] + [f"h {w}" for w in words(row["hypothesis"])]


def pair_overlap(row: Row) -> list[str]:
    """Return the words of both sides and how many of the hypothesis the premise lacks."""
    missing = set(words(row["hypothesis"])) - set(words(row["premise"]))
    names = [n for n in NAME.findall(row["hypothesis"]) if n not in row["premise"]]
    return [*pair_words(row), f"missing {len(missing)}", f"names {len(names)}"]


def similarity_overlap() -> float:
    """Return the Pearson correlation (0-100) of the share of common words with the label."""
    from scipy.stats import pearsonr

    test = rows("pocket_similarity", "test")
    pairs = [(set(words(row["sentence1"])), set(words(row["sentence2"]))) for row in test]
    shares = [len(a & b) / len(a | b) for a, b in pairs]
    return 100 * float(pearsonr(shares, [row["label"] for row in test])[0])


def choice_overlap() -> float:
    """Return accuracy of the option whose sentence shares most words with the question."""
    right = 0.0
    for row in rows("pocket_choice", "test"):
        scores = [overlap(sentence_of(row, option), row["question"]) for option in row["options"]]
        best = [letter for letter, s in zip("ABCD", scores, strict=True) if s == max(scores)]
        right += (row["answer"] in best) / len(best)
    return right / len(rows("pocket_choice", "test"))


def sentences(text: str) -> list[str]:
    """Split a text after full stops."""
    return re.split(r"(?<=\.) ", text)


def sentence_of(row: Row, option: str) -> str:
    """Return the sentence of the article that names an option."""
    return next(s for s in sentences(row["article"]) if option in s)


def overlap(sentence: str, question: str) -> int:
    """Return the number of distinct words that sentence and question share."""
    return len(set(words(sentence)) & set(words(question)))


def choice_words() -> float:
    """Return accuracy of the option that a regression scores highest."""
    train, test = rows("pocket_choice", "train"), rows("pocket_choice", "test")
    labels = [letter == row["answer"] for row in train for letter in "ABCD"]
    model = _regression(1.0).fit([f for row in train for f in option_words(row)], labels)
    right = 0
    for row in test:
        scores = model.predict_proba(option_words(row))[:, 1]
        right += "ABCD"[scores.argmax()] == row["answer"]
    return right / len(test)


def option_words(row: Row) -> list[list[str]]:
    """Return features of each option: words of its sentence and the question, their overlap."""
    question = [f"q {w}" for w in words(row["question"])]
    found = [sentence_of(row, option) for option in row["options"]]
    return [[*question, *words(s), f"overlap {overlap(s, row['question'])}"] for s in found]


def exact(task: str, guess: Callable[[Row], set[str]]) -> float:
    """Return the exact-match accuracy of the guessed sets of answers."""
    test = rows(task, "test")
    return sum(guess(row) == set(row["answers"]["text"]) for row in test) / len(test)


def no_answer(row: Row) -> set[str]:
    """Return no answer."""
    return set()


def first_entity(row: Row) -> set[str]:
    """Return the first name of the context."""
    return {NAME.findall(row["context"])[0]}


def nearest_entity(row: Row) -> set[str]:
    """Return the first name, not in the question, of the sentence most like the question."""
    best = max(sentences(row["context"]), key=lambda s: overlap(s, row["question"]))
    names = [name for name in NAME.findall(best) if name not in row["question"]]
    return set(names[:1])


def every_entity(row: Row) -> set[str]:
    """Return the names, not in the question, of all sentences with the question's last name."""
    name = NAME.findall(row["question"])[-1]
    near = [s for s in sentences(row["context"]) if name in s]
    return {n for s in near for n in NAME.findall(s) if n not in row["question"]}


def majority_object() -> float:
    """Return P@1 of each relation's most frequent training object."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows("pocket_facts", "train"):
        counts[row["predicate_id"]][row["obj_label"]] += 1
    test = rows("pocket_facts", "test")
    guesses = [counts[row["predicate_id"]].most_common(1)[0][0] for row in test]
    return sum(g == row["obj_label"] for g, row in zip(guesses, test, strict=True)) / len(test)


def role_f1(guess: Callable[[Row], list[str]]) -> float:
    """Return span F1 over roles without the predicate, as the CoNLL shared tasks count."""
    from seqeval.metrics import f1_score

    test = rows("pocket_srl", "test")
    return float(f1_score([_roles(row["srl_tags"]) for row in test], [guess(row) for row in test]))


def _roles(tags: Iterable[str]) -> list[str]:
    return ["O" if tag[2:] == "V" else tag for tag in tags]


def by_position(row: Row) -> list[str]:
    """Return ARG0 for the words before the predicate, ARG1 for those after it.

    Each span ends at a comma, a full stop or one of a few function words.
    """
    at, tokens = row["predicate_index"], row["tokens"]
    tags = ["O"] * len(tokens)
    left = at
    while left and tokens[left - 1] in BETWEEN:
        left -= 1
    start, end = left, at + 1
    while start and tokens[start - 1] not in BREAKS:
        start -= 1
    while end < len(tokens) and tokens[end] not in BREAKS:
        end += 1
    for role, first, last in (("ARG0", start, left), ("ARG1", at + 1, end)):
        tags[first:last] = [f"{'I' if i else 'B'}-{role}" for i in range(last - first)]
    return tags


def by_word() -> Callable[[Row], list[str]]:
    """Return a tagger with each word's most frequent tag before or after the predicate."""
    counts: dict[tuple[str, bool], Counter[str]] = defaultdict(Counter)
    for row in rows("pocket_srl", "train"):
        for i, (word, tag) in enumerate(zip(row["tokens"], row["srl_tags"], strict=True)):
            counts[word, i > row["predicate_index"]][tag] += 1

    def guess(row: Row) -> list[str]:
        keys = [(word, i > row["predicate_index"]) for i, word in enumerate(row["tokens"])]
        return _roles(counts[k].most_common(1)[0][0] if k in counts else "O" for k in keys)

    return guess


def mentions(row: Row) -> list[tuple[int, int, str]]:
    """Return a row's entities as (first word, word after the last, type)."""
    found: list[tuple[int, int, str]] = []
    for i, tag in enumerate(row["ner_tags"]):
        if tag.startswith("B-"):
            found.append((i, i + 1, tag[2:]))
        elif tag.startswith("I-"):
            found[-1] = (found[-1][0], i + 1, tag[2:])
    return found


def gazetteer(train: list[Row]) -> Gazetteer:
    """Return the most frequent type of every mention in the training rows."""
    counts: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for row in train:
        for start, end, kind in mentions(row):
            counts[tuple(row["tokens"][start:end])][kind] += 1
    return {surface: kinds.most_common(1)[0][0] for surface, kinds in counts.items()}


def look_up(known: Gazetteer, tokens: list[str]) -> list[str]:
    """Return tags by the longest known mention at each token, left to right."""
    longest = max(map(len, known))
    tags: list[str] = []
    while len(tags) < len(tokens):
        at = len(tags)
        sizes = range(min(longest, len(tokens) - at), 0, -1)
        size = next((n for n in sizes if tuple(tokens[at : at + n]) in known), 0)
        kind = known.get(tuple(tokens[at : at + size]))
        tags += [f"B-{kind}"] + [f"I-{kind}"] * (size - 1) if size else ["O"]
    return tags


def gazetteer_f1() -> float:
    """Return entity F1 of the training gazetteer on the test rows."""
    from seqeval.metrics import f1_score

    known, test = gazetteer(rows("pocket_ner", "train")), rows("pocket_ner", "test")
    predicted = [look_up(known, row["tokens"]) for row in test]
    return float(f1_score([row["ner_tags"] for row in test], predicted))


def unseen_share() -> float:
    """Return the share of test mentions that are not in the training rows."""
    known = gazetteer(rows("pocket_ner", "train"))
    surfaces = [
        tuple(row["tokens"][start:end])
        for row in rows("pocket_ner", "test")
        for start, end, _ in mentions(row)
    ]
    return sum(surface not in known for surface in surfaces) / len(surfaces)


def other_tasks() -> dict[str, float]:
    """Return the figures of the other tasks, as shares except the correlation (0-100)."""
    found = {
        "topics_words": classify("pocket_topics", topic_words),
        "pairs_words": classify("pocket_pairs", pair_words),
        "pairs_words_and_overlap": classify("pocket_pairs", pair_overlap, 0.1),
        "similarity_overlap_pearson": similarity_overlap(),
        "choice_overlap": choice_overlap(),
        "choice_words": choice_words(),
        "qa_no_answer_em": exact("pocket_qa", no_answer),
        "qa_first_entity_em": exact("pocket_qa", first_entity),
        "qa_nearest_entity_em": exact("pocket_qa", nearest_entity),
        "multispan_first_entity_em": exact("pocket_multispan", first_entity),
        "multispan_every_entity_em": exact("pocket_multispan", every_entity),
        "facts_majority_p_at_1": majority_object(),
        "srl_position_f1": role_f1(by_position),
        "srl_word_and_side_f1": role_f1(by_word()),
    }
    return {name: round(value, 4) for name, value in found.items()}


def measure() -> dict[str, Any]:
    """Return all figures; bags of words have the strength that is best on the test rows."""
    strengths = (0.1, 1.0, 10.0)
    return {
        "world_version": VERSION,
        "sentiment_accuracy": {
            name: round(max(bag_of_words(longest, c) for c in strengths), 4)
            for name, longest in (("words", 1), ("words_and_pairs", 2), ("up_to_three_words", 3))
        },
        "ner_gazetteer_f1": round(gazetteer_f1(), 4),
        "ner_unseen_mentions": round(unseen_share(), 4),
        "other_tasks": other_tasks(),
    }


def main() -> None:
    """Save and print the figures."""
    from running import arguments

    given, figures = arguments(__doc__).parse_args(), measure()
    (given.out / "pocket_baselines.json").write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
