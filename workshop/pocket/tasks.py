"""How the rows of each task of the pocket world are made."""

from collections.abc import Callable
from functools import partial

from ptrun.pocket.tasks import Row
from workshop.pocket import probe
from workshop.pocket.draw import splits
from workshop.pocket.pairs import pairs, similarity
from workshop.pocket.reading import choice, multispan, qa
from workshop.pocket.tagging import ner, srl, words
from workshop.pocket.texts import SIZES, sentiment, several, topics, writing

MADE: dict[str, Callable[[], dict[str, list[Row]]]] = {
    "pocket_ner": partial(splits, "ner", ner, ("tokens",), shuffled=False),
    "pocket_sentiment": partial(splits, "sentiment", sentiment, ("sentence",), SIZES),
    "pocket_topics": partial(splits, "topics", topics, ("text",)),
    "pocket_pairs": partial(splits, "pairs", pairs, ("premise", "hypothesis")),
    "pocket_similarity": partial(splits, "similarity", similarity, ("sentence1", "sentence2")),
    "pocket_choice": partial(splits, "choice", choice, ("article",)),
    "pocket_srl": partial(splits, "srl", srl, ("tokens",)),
    "pocket_qa": partial(splits, "qa", qa, ("context",)),
    "pocket_multispan": partial(splits, "multispan", multispan, ("context",)),
    "pocket_facts": probe.splits,
    "pocket_writing": partial(splits, "writing", writing, ("facts",), (2000, 300, 400)),
    "pocket_two_topics": partial(splits, "two topics", several, ("text",), (1500, 300, 400)),
    "pocket_words": partial(splits, "words", words, ("tokens",), (120, 30, 40)),
}
