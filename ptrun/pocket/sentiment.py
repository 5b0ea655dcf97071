"""Sentiment rows: one opinion each, labelled with its computed sign; half of each label."""

import random
from typing import Any

from ptrun.pocket.opinion import Speaker
from ptrun.pocket.review import things

SIZES = {"train": 2000, "validation": 400, "test": 800}
KEPT = 0.8  # every fifth predicate is negated: the signs of words help, and are not enough
SHARES = (66, 16, 6, 12)
HELD = {"train": 0.0, "validation": 0.2, "test": 0.2}  # chance of each held-out choice
LABELS = {1: "positive", -1: "negative"}


def rows(split: str) -> list[dict[str, Any]]:
    """Return the rows of a split; no sentence occurs twice in the task."""
    seen = {row["sentence"] for name in _before(split) for row in rows(name)}
    rng = random.Random(f"pocket sentiment {split} 1")
    found: list[dict[str, Any]] = []
    while len(found) < SIZES[split]:
        sign = 1 if len(found) % 2 else -1
        speaker = Speaker(rng.choice(things()), rng, HELD[split], kept=KEPT, shares=SHARES)
        opinion = speaker.opinion(sign)
        if opinion.text not in seen:
            seen.add(opinion.text)
            found.append({"sentence": opinion.text, "label": LABELS[opinion.value]})
    rng.shuffle(found)
    return [{"id": f"{split}-{i}", **row} for i, row in enumerate(found)]


def _before(split: str) -> list[str]:
    return list(SIZES)[: list(SIZES).index(split)]
