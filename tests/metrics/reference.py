"""The scorers' rules written another way: character by character, by search over all choices."""

import itertools
import string

import numpy as np


def squad_words(text):
    kept = "".join(c for c in text.lower() if c not in string.punctuation)
    runs = itertools.groupby(kept, key=lambda c: c.isalnum() or c == "_")
    pieces = ["".join(run) for _, run in runs]
    return "".join(" " if p in ("a", "an", "the") else p for p in pieces).split()


def squad_f1(guess, gold, *, null):
    left, right = squad_words(guess), squad_words(gold)
    if null and not (left and right):
        return float(left == right)
    shared = 0
    rest = list(right)
    for word in left:
        if word in rest:
            rest.remove(word)
            shared += 1
    if not shared:
        return 0.0
    precision, recall = shared / len(left), shared / len(right)
    return 2 * precision * recall / (precision + recall)


def squad_em(guess, gold):
    return float(" ".join(squad_words(guess)) == " ".join(squad_words(gold)))


def is_number(text):
    try:
        return float(text) is not None
    except ValueError:
        return False


def drop_words(span):
    words = []
    for token in "-".join(span.split(" ")).split("-"):
        token = token.lower()
        if not is_number(token):
            token = "".join(c for c in token if c not in string.punctuation)
        token = str(float(token)) if is_number(token) else token
        runs = itertools.groupby(token, key=lambda c: c.isalnum() or c == "_" or c == ".")
        pieces = ["".join(run) for _, run in runs]
        words += "".join(" " if p in ("a", "an", "the") else p for p in pieces).split()
    return words


def drop_em(guesses, golds):
    left, right = ([" ".join(drop_words(s)) for s in spans] for spans in (guesses, golds))
    return float(set(left) == set(right) and len(left) == len(right))


def drop_pair(guess, gold):
    left, right = set(drop_words(guess)), set(drop_words(gold))
    numbers = [word for word in right if is_number(word)]
    if numbers and not any(word in left for word in numbers):
        return 0.0
    if not left or not right:
        return float(left == right)
    shared = [word for word in left if word in right]
    if not shared:
        return 0.0
    precision, recall = len(shared) / len(left), len(shared) / len(right)
    return 2 * precision * recall / (precision + recall)  # 3/5 and 1 give 0.7499..., not 3/4


def drop_f1(guesses, golds):
    """Try every 1-1 pairing; the shorter side is filled with partners worth nothing."""
    size = max(len(guesses), len(golds))
    table = [[0.0] * size for _ in range(size)]
    for i, gold in enumerate(golds):
        for j, guess in enumerate(guesses):
            table[i][j] = drop_pair(guess, gold)
    orders = itertools.permutations(range(size))
    best = max(sum(map(list.__getitem__, table, order)) for order in orders)
    return float(np.round(best / size, 2))
