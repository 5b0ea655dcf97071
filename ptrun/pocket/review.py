"""Reviews: a few opinions of one sign, then a verdict or a consequence."""

import random

from ptrun.pocket.lexicon import items, table
from ptrun.pocket.opinion import SIGNS, Speaker
from ptrun.pocket.phrase import word
from ptrun.pocket.template import Slot, render

HELD = 0.2  # the corpus knows all words and frames
PLAIN = 0.4  # share of plain writers; without them a model does not learn negation


def things() -> tuple[str, ...]:
    """Return everything that can be reviewed."""
    return tuple(table("opinions")["things"])


def review(rng: random.Random) -> list[str]:
    """Return the sentences of a review.

    Most reviews are one opinion and one verdict. A single word of the verdict carries the sign, so
    neither can be guessed without the other.
    """
    thing = rng.choice(things())
    sign = rng.choice((1, -1))
    speaker = Speaker(thing, rng, HELD, plain=rng.random() < PLAIN)
    count, ends = rng.choices(((1, 1), (1, 2), (1, 3), (2, 2)), (45, 25, 15, 15))[0]
    opinions = [speaker.opinion(sign).text for _ in range(count)]
    endings = [_ending(thing, sign, rng) for _ in range(ends)]
    return opinions + endings


def _ending(thing: str, sign: int, rng: random.Random) -> str:
    if rng.random() < 0.3:
        return _filled(rng.choice(table("opinions")["consequences"][SIGNS[sign]]), thing, (), rng)
    return verdict(thing, sign, rng)


def verdict(thing: str, sign: int, rng: random.Random) -> str:
    """Return a sentence whose one polar word says whether the writer liked the thing."""
    verdicts = table("opinions")["verdicts"]
    number = rng.randrange(len(verdicts["pairs"]))
    polar = items(verdicts["pairs"][number][0 if sign > 0 else 1] + ";")
    return _filled(rng.choice(verdicts["templates"][number]), thing, polar, rng)


def _filled(template: str, thing: str, polar: tuple[str, ...], rng: random.Random) -> str:
    fixed = {"thing_name": thing}
    fixed |= dict(zip("vw", rng.sample(polar, min(2, len(polar))), strict=False))

    def fill(slot: Slot) -> str:
        chosen = fixed[slot.role] if slot.role in fixed else word(slot, rng)
        if slot.form == "a":
            return ("an " if chosen[0] in "aeiou" else "a ") + chosen
        return chosen

    return render(template, fill, rng).text
