"""The metrics of all tasks: predictions and targets in, numbers in 0-100 out."""

import re
import statistics
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Sequence
from itertools import chain
from math import atan, frexp, fsum, isfinite, ldexp, pi, sqrt
from statistics import NormalDist, correlation, fmean
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import regex

# Scores of one label per example: accuracy, F1 of a class, and its means over classes.
#
# A class that is neither predicted nor gold has F1 0, as in scikit-learn with `zero_division=0`.

Labels = Sequence[Hashable]
Metric = Literal["accuracy", "macro_f1", "f1", "accuracy_f1"]


def score(
    metric: Metric, predicted: Labels, targets: Labels, *, positive: Hashable = None
) -> float:
    """Return a metric by its name, 0-100; `f1` and `accuracy_f1` need the `positive` label."""
    if metric == "accuracy":
        return accuracy(predicted, targets)
    if metric == "macro_f1":
        return macro_f1(predicted, targets)
    scorer = binary_f1 if metric == "f1" else accuracy_and_f1
    return scorer(predicted, targets, positive=positive)


def accuracy(predicted: Labels, targets: Labels) -> float:
    """Return the share of equal pairs, 0-100."""
    return percent([float(p == t) for p, t in paired(predicted, targets)])


def binary_f1(predicted: Labels, targets: Labels, *, positive: Hashable) -> float:
    """Return the F1 of the positive class, 0-100; every other label counts as negative."""
    return percent(_f1_of([positive], predicted, targets))


def macro_f1(predicted: Labels, targets: Labels) -> float:
    """Return the mean F1 over the classes that are gold or predicted, 0-100.

    This is scikit-learn's default, which PPT uses for CB. PPT predicts words of the vocabulary, so
    each predicted word that is no label adds a class with F1 0.
    """
    return percent(_f1_of({*predicted, *targets}, predicted, targets))


def accuracy_and_f1(predicted: Labels, targets: Labels, *, positive: Hashable) -> float:
    """Return the mean of accuracy and binary F1, 0-100: MRPC and QQP in IDPG."""
    f1 = binary_f1(predicted, targets, positive=positive)
    return (accuracy(predicted, targets) + f1) / 2


def _f1_of(classes: Collection[Hashable], predicted: Labels, targets: Labels) -> list[float]:
    """Return the F1 of each class, 0-1: twice the hits over predicted plus gold."""
    hits = Counter(p for p, t in paired(predicted, targets) if p == t)
    seen = Counter(predicted) + Counter(targets)
    return [2 * hits[c] / seen[c] if seen[c] else 0.0 for c in classes]


# Shared by all metrics: pairs of predictions and targets, and a mean in 0-100.

P = TypeVar("P")
T = TypeVar("T")


def paired(predicted: Sequence[P], targets: Sequence[T]) -> list[tuple[P, T]]:
    """Return pairs of predictions and targets; a ValueError if their numbers differ, or are 0."""
    if len(predicted) != len(targets):
        raise ValueError(f"{len(predicted)} predictions for {len(targets)} targets.")
    if not targets:
        raise ValueError("no targets: a score needs at least one.")
    return list(zip(predicted, targets, strict=True))


def percent(values: Sequence[float]) -> float:
    """Return the mean of values in 0-1, as a number in 0-100."""
    return 100.0 * fsum(values) / len(values)


# MultiRC: several candidate answers to a question, each right or wrong by itself.


def multirc_scores(
    predicted: Labels,
    targets: Labels,
    questions: Sequence[Hashable],
    *,
    positive: Hashable,
) -> dict[str, float]:
    """Return F1a, the binary F1 over all answers, and EM over whole questions, 0-100.

    There is a prediction, a target and a question for each candidate answer. Include the paragraph
    in the question, because question numbers are not unique in some files. `positive` is the label
    of a right answer.
    """
    all_right: dict[Hashable, bool] = {}
    for question, (guess, gold) in paired(questions, paired(predicted, targets)):
        all_right[question] = all_right.get(question, True) and guess == gold
    return {
        "f1a": binary_f1(predicted, targets, positive=positive),
        "em": percent(list(map(float, all_right.values()))),
    }


# Fact probing (LAMA): precision at 1, the share of facts whose best prediction is the object.


def precision_at_1(
    predicted: Sequence[str], targets: Sequence[str], relations: Sequence[str]
) -> dict[str, float]:
    """Return P@1 in 0-100: `p_at_1`, the mean over relations, and `p_at_1_facts`, over facts.

    The published tables use the mean over relations, as LAMA does (P-tuning does not say). A
    prediction is the best word of the allowed vocabulary; leave out facts with another object.
    """
    hits: dict[str, list[float]] = {}
    for relation, (guess, gold) in paired(relations, paired(predicted, targets)):
        hits.setdefault(relation, []).append(float(guess == gold))
    by_relation = fmean(map(percent, hits.values()))
    return {"p_at_1": by_relation, "p_at_1_facts": accuracy(predicted, targets)}


# Correlation of predicted with gold numbers, for STS-B; -100 to 100.
#
# If all predictions or all targets are equal, the coefficient is undefined and scored 0. So a
# collapsed run gets a number that can be averaged, never NaN.

Numbers = Sequence[float]


def pearson(predicted: Numbers, targets: Numbers) -> float:
    """Return 100 times the correlation of two or more finite pairs; 0 if one side is constant."""
    for pair in paired(predicted, targets):
        if not all(map(isfinite, pair)):
            raise ValueError(f"prediction and target {pair} must be finite.")
    if len(targets) < 2:
        raise ValueError("a correlation needs at least two pairs; got 1.")
    if min(predicted) == max(predicted) or min(targets) == max(targets):
        return 0.0
    return 100.0 * correlation(_scaled(predicted), _scaled(targets))


def _scaled(values: Numbers) -> list[float]:
    """Return values times a power of two, at most 1, so that no square overflows or vanishes."""
    _, exponent = frexp(max(map(abs, values)))
    return [ldexp(value, -exponent) for value in values]


def spearman(predicted: Numbers, targets: Numbers) -> float:
    """Return 100 times the linear correlation of ranks; equal numbers share their mean rank."""
    return pearson(_ranks(predicted), _ranks(targets))


def pearson_and_spearman(predicted: Numbers, targets: Numbers) -> float:
    """Return the mean of both coefficients, -100 to 100: STS-B in IDPG."""
    return (pearson(predicted, targets) + spearman(predicted, targets)) / 2


def _ranks(values: Numbers) -> list[float]:
    """Return ranks from 1, with the mean rank if values are equal."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: list[float] = (counts.cumsum() - (counts - 1) / 2)[places].tolist()
    return ranks


# Scores of entities in tagged sentences, all in 0-100: the rules of seqeval in its default mode.
#
# They are lenient, as conlleval is: the tags O, B, I, E and S open and close entities even if they
# break a scheme. A stray `I-X` opens an entity, and a change of type opens another one.

Tags = Sequence[str]


class TaggedEntity(NamedTuple):
    """An entity: its type, and the positions of its first and last tag."""

    kind: str
    first: int
    last: int


def entity_scores(predicted: Sequence[Tags], targets: Sequence[Tags]) -> dict[str, float]:
    """Return micro F1, precision and recall over entities; 0 if a ratio is undefined.

    P-tuning v2 scores SRL with it too. The official scorer of SRL leaves out the predicate's own
    span `V`, which is nearly always right, and joins a continuation `C-X` with its `X`. A sentence
    with more or fewer tags than targets is a ValueError.
    """
    for guess, gold in paired(predicted, targets):
        if len(guess) != len(gold):
            raise ValueError(f"a sentence has {len(guess)} predicted tags for {len(gold)} targets.")
    guesses, golds = set(entities(_joined(predicted))), set(entities(_joined(targets)))
    right = len(guesses & golds)
    precision, recall = right / (len(guesses) or 1), right / (len(golds) or 1)
    f1 = 2 * precision * recall / (precision + recall or 1)
    return {"f1": 100.0 * f1, "precision": 100.0 * precision, "recall": 100.0 * recall}


def word_scores(predicted: Sequence[Tags], targets: Sequence[Tags]) -> dict[str, float]:
    """Return accuracy and macro F1 over the words of all sentences, 0-100.

    The label of a word that the model did not read is empty: wrong, and no class.
    """
    guesses, golds = [*chain(*predicted)], [*chain(*targets)]
    f1 = percent(_f1_of({*guesses, *golds} - {""}, guesses, golds))
    return {"accuracy": accuracy(guesses, golds), "macro_f1": f1}


def entities(tags: Tags) -> list[TaggedEntity]:
    """Return the entities of a sentence, in order; a tag without a type has the type `_`."""
    chunks, begin = [], 0
    mark_before, kind_before = "O", ""
    for place, tag in enumerate([*tags, "O"]):
        mark, kind = tag[0], tag[1:].split("-", maxsplit=1)[-1] or "_"
        ends = mark_before in "ES" or (mark_before in "BI" and mark in "BSO")
        if ends or (mark_before not in "O." and kind != kind_before):
            chunks.append(TaggedEntity(kind_before, begin, place - 1))
        begins = mark in "BS" or (mark_before in "ESO" and mark in "EI")
        if begins or (mark not in "O." and kind != kind_before):
            begin = place
        mark_before, kind_before = mark, kind
    return chunks


def by_label(answer: str, predicted: Sequence[Any], targets: Sequence[Any]) -> dict[str, Any]:
    """Return `scores` of each label or type of entity, and of labels the `confusion`.

    `scores` has precision, recall and F1 in 0-100, and `count`, the targets. `confusion` has the
    predictions of each target, `{target: {prediction: count}}`. Ratios without a prediction or a
    target are 0. Empty for other answers than `label`, `labels`, `tags` and `word_labels`.
    """
    if answer == "word_labels":
        answer, predicted, targets = "label", [*chain(*predicted)], [*chain(*targets)]
    if answer == "label":
        guesses, golds = [*map(str, predicted)], [*map(str, targets)]
        hits = [guess for guess, gold in paired(guesses, golds) if guess == gold]
    elif answer == "labels":
        sets = [(set(p), set(t)) for p, t in zip(predicted, targets, strict=True)]
        guesses, golds = ([label for pair in sets for label in pair[side]] for side in (0, 1))
        hits = [label for guess, gold in sets for label in guess & gold]
    elif answer == "tags":
        chunks = entities(_joined(predicted)), entities(_joined(targets))
        guesses, golds = ([entity.kind for entity in side] for side in chunks)
        hits = [entity.kind for entity in {*chunks[0]} & {*chunks[1]}]
    else:
        return {}
    right, guessed, counts = Counter(hits), Counter(guesses), Counter(golds)
    scores = {
        label: {
            "precision": 100.0 * right[label] / (guessed[label] or 1),
            "recall": 100.0 * right[label] / (counts[label] or 1),
            "f1": 200.0 * right[label] / (guessed[label] + counts[label]),
            "count": counts[label],
        }
        for label in sorted({*guesses, *golds} - {""})
    }
    if answer != "label":
        return {"scores": scores}
    confusion: dict[str, dict[str, int]] = {}
    for gold, guess in sorted(zip(golds, guesses, strict=True)):
        row = confusion.setdefault(gold, {})
        row[guess] = row.get(guess, 0) + 1
    return {"scores": scores, "confusion": confusion}


def _joined(sentences: Sequence[Tags]) -> list[str]:
    """Return all tags as one sequence, with an `O` after each sentence."""
    return [tag for tags in sentences for tag in (*tags, "O")]


# SQuAD 1.1 and 2.0: exact match and token F1 after normalisation, the best over gold answers.

_PUNCTUATION = str.maketrans("", "", string.punctuation)  # ASCII only, as the official scorers
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_SIGNS = regex.compile(r"[\p{P}" + re.escape(string.punctuation) + "]")
_INVISIBLE = regex.compile(r"(?!\u200b)\p{Cf}")  # joiners and directions; not the space of no width
UNSPACED = regex.compile(
    r"(?=[\p{L}\p{Nl}])[\p{scx=Han}\p{scx=Hiragana}\p{scx=Katakana}\p{scx=Bopomofo}\p{Thai}\p{Lao}"
    r"\p{Khmer}\p{Myanmar}\p{Tibetan}\p{Javanese}\p{Balinese}]\p{M}*"
)
"""A letter, with its marks, of a script whose words have no spaces between them."""

Answers = Sequence[str]
Match = Callable[[str, str], float]
"""A prediction and one gold answer to a value in 0-1."""


def normalise(text: str) -> str:
    """Return text in lower case without punctuation, articles and extra space, in that order."""
    bare = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def lowered(text: str) -> str:
    """Return text in lower case and Unicode's form NFC, without invisible characters."""
    return str(_INVISIBLE.sub("", unicodedata.normalize("NFC", text.lower())))


def by_words(text: str) -> str:
    """Return `lowered` text without punctuation of any script and extra space; articles stay."""
    return " ".join(_SIGNS.sub("", lowered(text).replace("\u200b", " ")).split())


def by_characters(text: str) -> str:
    """Return `by_words` with spaces around characters of scripts that have none between words.

    Words are then characters, as in the scorers of CMRC 2018, DRCD and MLQA; words of other scripts
    stay whole. A text without such characters does not change.
    """
    if not UNSPACED.search(text):
        return text
    return " ".join(UNSPACED.sub(r" \g<0> ", by_words(text)).split())


READ: dict[str, Callable[[str], str]] = {
    "english": lambda text: normalise(unicodedata.normalize("NFC", text)),
    "words": by_words,
    "characters": lambda text: by_characters(by_words(text)),
}
"""How exact match and F1 read a text, by the rule of its tokens (`ptrun.task.text_metrics`)."""


def exact_match(prediction: str, gold: str, read: Callable[[str], str] = normalise) -> float:
    """Return 1 if both read as the same text, else 0."""
    return float(read(prediction) == read(gold))


def token_f1(prediction: str, gold: str, read: Callable[[str], str] = normalise) -> float:
    """Return the F1 of the two bags of words, 0-1; 0 without a shared word, even if both empty."""
    guess, target = read(prediction).split(), read(gold).split()
    shared = (Counter(guess) & Counter(target)).total()
    return 2 * shared / (len(guess) + len(target)) if shared else 0.0


def token_f1_or_null(prediction: str, gold: str) -> float:
    """Return SQuAD 2.0's F1, 0-1: as `token_f1`, but 1 if both have no words."""
    both_empty = not normalise(prediction) and not normalise(gold)
    return 1.0 if both_empty else token_f1(prediction, gold)


def best(match: Match, prediction: str, answers: Answers) -> float:
    """Return the largest value over the gold answers, of which there is at least one."""
    if not answers:
        raise ValueError(f"prediction {prediction!r} has no gold answer to compare with.")
    return max(match(prediction, gold) for gold in answers)


def squad_scores(predicted: Sequence[str], targets: Sequence[Answers]) -> dict[str, float]:
    """Return SQuAD 1.1's exact match and F1, 0-100; every question has a gold answer.

    ReCoRD has the same rules: the entity chosen for a query, and its gold entities.
    """
    pairs = paired(predicted, targets)
    return {
        "em": percent([best(exact_match, p, golds) for p, golds in pairs]),
        "f1": percent([best(token_f1, p, golds) for p, golds in pairs]),
    }


def squad_v2_scores(predicted: Sequence[str], targets: Sequence[Answers]) -> dict[str, float]:
    """Return SQuAD 2.0's exact match and F1, 0-100: over all questions, and by answerability.

    An empty prediction or an empty list of gold answers means "no answer". The scores
    `has_answer_*` and `no_answer_*` are left out if there is no such question.
    """
    every = paired(predicted, targets)
    answered = {"": every, "has_answer_": [pair for pair in every if pair[1]]}
    parts = {**answered, "no_answer_": [pair for pair in every if not pair[1]]}
    scores = {}
    for prefix, pairs in parts.items():
        # gold answers without words do not count; "" does if none has any
        worded = [(p, [gold for gold in golds if normalise(gold)] or [""]) for p, golds in pairs]
        for name, match in (("em", exact_match), ("f1", token_f1_or_null)) if pairs else ():
            scores[prefix + name] = percent([best(match, p, golds) for p, golds in worded])
    return scores


# DROP's exact match and F1 over several answer spans, as DPT uses them for QUOREF.

Spans = Sequence[str]
Bag = frozenset[str]


def normalise_answer(text: str) -> str:
    """Return the words between spaces and hyphens, each normalised, joined by one space.

    Each word becomes lower case, and loses its punctuation unless it is a number. Then numbers are
    written as floats (`1,000` and `1000` both give `1000.0`), and articles are removed.
    """
    words: list[str] = []
    for piece in re.split("[ -]", text.lower()):
        bare = piece if _is_number(piece) else piece.translate(_PUNCTUATION)
        number = str(float(bare)) if _is_number(bare) else bare
        words += _ARTICLES.sub(" ", number).split()
    return " ".join(words)


def drop_scores(predicted: Sequence[Spans], targets: Sequence[Spans]) -> dict[str, float]:
    """Return exact match and F1, 0-100: means over questions."""
    pairs, exact = paired(predicted, targets), []
    for guess, gold in pairs:
        same = {*map(normalise_answer, guess)} == {*map(normalise_answer, gold)}
        exact.append(float(same and len(guess) == len(gold)))
    return {"em": percent(exact), "f1": percent([_f1(guess, gold) for guess, gold in pairs])}


def _f1(predicted: Spans, gold: Spans) -> float:
    """Return a question's F1, 0-1: the F1 sum of its best pairs over the larger number of spans."""
    if not gold:
        raise ValueError(f"predicted spans {list(predicted)} have no gold span to compare with.")
    guesses, golds = [_bag(span) for span in predicted], [_bag(span) for span in gold]
    table = [[_bag_f1(guess, target) for guess in guesses] for target in golds]
    values = [table[row][column] for row, column in best_assignment(table)]
    # as numpy rounds, whose float the scorer has; `round(value, 2)` differs at some halves
    return round(100 * (sum(values) / max(len(guesses), len(golds)))) / 100


def _bag_f1(guess: Bag, gold: Bag) -> float:
    """Return the F1 of two sets of words, 0-1; 0 if gold has numbers and none is shared."""
    numbers = {word for word in gold if _is_number(word)}
    if numbers and not numbers & guess:
        return 0.0
    shared = len(gold & guess)
    precision = shared / len(guess) if guess else 1.0
    recall = shared / len(gold) if gold else 1.0
    # the scorer's order: 3 of 5 words give 0.7499..., half of which rounds down, unlike that of 3/4
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _bag(span: str) -> Bag:
    return frozenset(normalise_answer(span).split())


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def best_assignment(weights: Sequence[Sequence[float]]) -> list[tuple[int, int]]:
    """Return the (row, column) pairs with the largest total weight, in row order.

    Some items of the longer side stay unpaired.
    """
    from networkx import Graph, max_weight_matching

    graph = Graph()
    for i, row in enumerate(weights):
        graph.add_weighted_edges_from((i, ~j, weight) for j, weight in enumerate(row))  # ~j < 0
    pairs = max_weight_matching(graph, maxcardinality=True)
    return sorted((max(pair), ~min(pair)) for pair in pairs)


# The selection bias of the best dev score: the cost of choosing among many candidates.


def selection_bias(dev_scores: Sequence[float], examples: int) -> float:
    """Return by how much the highest dev score is expected to be too high, in points of 0-100.

    The reference is the winner's score on infinite data of the same kind. The bias is
    `e(n) * b(w) / sqrt(b(m) + t)`, with

    - `e(n)`, the expected maximum of n standard normals, for n candidates;
    - `b(p) = p * (100 - p) / examples`, the binomial variance of a score around p;
    - `m`, the mean dev score;
    - `t`, the variance of the candidates' true scores: the sample variance (ddof 1) of their dev
      scores minus `b(m)`, at least 0;
    - `w`, the estimate of the winner's true score: `m` plus `t / (b(m) + t)` of its lead.

    With equal candidates it is `e(n) * sqrt(b(m))`. True differences make it smaller. It assumes
    that true scores and noise are normal and independent across candidates, and that the score is
    the mean of independent right and wrong predictions. Candidates scored on the same dev set
    share noise, which selection cannot exploit, so the value is an upper estimate.

    Raises:
        ValueError: no candidate, a score outside 0-100, or fewer than 1 dev example.
    """
    if not dev_scores:
        raise ValueError("dev_scores is empty; give at least 1 score.")
    if wrong := [score for score in dev_scores if not 0.0 <= score <= 100.0]:
        raise ValueError(f"dev score {wrong[0]} is outside 0-100; give points.")
    if examples < 1:
        raise ValueError(f"examples is {examples}; a dev score needs at least 1.")
    n, mean = len(dev_scores), statistics.fmean(dev_scores)
    noise = _binomial_variance(mean, examples)
    if n == 1 or noise == 0.0:
        return 0.0
    total = max(noise, statistics.variance(dev_scores))
    winner = mean + (1.0 - noise / total) * (max(dev_scores) - mean)
    return expected_maximum(n) * _binomial_variance(winner, examples) / sqrt(total)


def expected_maximum(n: int) -> float:
    """Return the expected maximum of n independent standard normals, to 1e-9.

    The integral of `x * n * pdf(x) * cdf(x)^(n - 1)`, by the trapezoid rule on -10 to 10.
    """
    normal, step = NormalDist(), 0.01
    points = [i * step for i in range(-1000, 1001)]
    return step * n * sum(x * normal.pdf(x) * normal.cdf(x) ** (n - 1) for x in points)


def _binomial_variance(score: float, examples: int) -> float:
    return score * (100.0 - score) / examples


# Student's distribution, and Holm's correction for several comparisons.


def student_p(t: float, freedom: float) -> float:
    """Return the two-sided p of Student's t with so many degrees of freedom, to 1e-6.

    With t = sqrt(f) tan(a) the density is that of cos(a)^(f - 1), which is integrated.
    """
    ends = atan(abs(t) / sqrt(freedom)), pi / 2
    within, whole = (
        float(np.trapezoid(np.cos(np.linspace(0, end, 4001)) ** (freedom - 1), dx=end / 4000))
        for end in ends
    )
    return 1.0 - within / whole


def student_limit(freedom: float, level: float = 0.95) -> float:
    """Return the t between which and -t a share `level` of Student's distribution lies."""
    low, high = 0.0, 1e4
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if student_p(middle, freedom) < 1 - level else (middle, high)
    return high


def holm(ps: Sequence[float]) -> list[float]:
    """Return each p after Holm's correction, in the same order."""
    order, corrected, least = sorted(range(len(ps)), key=ps.__getitem__), [0.0] * len(ps), 0.0
    for rank, place in enumerate(order):
        least = max(least, min(1.0, (len(ps) - rank) * ps[place]))
        corrected[place] = least
    return corrected
