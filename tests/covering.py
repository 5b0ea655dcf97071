"""Few combinations in which every pair of values occurs, for products that are not the point."""

from itertools import combinations, product


def covering(*factors):
    """Return combinations of one value of each factor that hold every pair, found greedily.

    The first combination has the first value of each factor.
    """
    every = list(product(*map(tuple, factors)))
    chosen, missing = [], {pair for one in every for pair in _pairs(one)}
    while missing:
        chosen.append(max(every, key=lambda one: len(missing & _pairs(one))))
        missing -= _pairs(chosen[-1])
    return chosen


def _pairs(values):
    return set(combinations(enumerate(values), 2))
