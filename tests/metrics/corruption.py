"""Seeded random predictions for comparing metrics with references."""

import random


def rounds():
    """Yield one generator of random numbers per corruption."""
    return (random.Random(seed) for seed in range(1000))


def labels(rng, names, size):
    return [rng.choice(names) for _ in range(size)]
