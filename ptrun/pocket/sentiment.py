"""Sentiment rows: one opinion each, labelled with its computed sign; half of each label."""

from ptrun.pocket.draw import Draw, Row
from ptrun.pocket.opinion import Speaker
from ptrun.pocket.review import things

SIZES = (2000, 400, 800)
KEPT = 0.8  # every fifth predicate is negated, so the signs of words alone are not enough
SHARES = (66, 16, 6, 12)
HELD = {"train": 0.0, "validation": 0.2, "test": 0.2}  # chance of each held-out choice
LABELS = {1: "positive", -1: "negative"}


def make(draw: Draw) -> list[Row]:
    """Return one row; the labels alternate."""
    thing, held = draw.rng.choice(things()), HELD[draw.split]
    speaker = Speaker(thing, draw.rng, held, kept=KEPT, shares=SHARES)
    opinion = speaker.opinion(1 if draw.turn % 2 else -1)
    return [{"sentence": opinion.text, "label": LABELS[opinion.value]}]
