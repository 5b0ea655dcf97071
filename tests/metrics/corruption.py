"""Seeded random predictions and made-up texts for comparing metrics with references."""

import random

ROUNDS = 1000
WORDS = [
    "the", "a", "An", "THE", "tin", "Ore", "ore,", "sea", "Gulf", "gulf.", "red", "red's", "x_y",
    "(the)", "the—ore", "...", "12", "12.0", "1,200", "1200", "$7", "007", "well-made", "3-day",
    "Zoë", "naïve", "-", "a.", "nan", "1e3", "9%", "tin\tsea",
]  # fmt: skip


def rounds():
    """Yield one generator of random numbers per corruption."""
    return (random.Random(seed) for seed in range(ROUNDS))


def phrase(rng, longest=4):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, longest)))


def corrupt(rng, text):
    """Return the text, or one that shares some of its words, or another."""
    words = text.split(" ")
    choice = rng.randrange(5)
    if choice == 0:
        return text
    if choice == 1:
        return f"{text} {rng.choice(WORDS)}"
    if choice == 2:
        return " ".join(words[1:]) or "the"
    if choice == 3:
        return " ".join(rng.sample(words, len(words))).upper()
    return phrase(rng)


def labels(rng, names, size):
    return [rng.choice(names) for _ in range(size)]
