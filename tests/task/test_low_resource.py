"""DPT's share of each class: drawn as the released code draws it, whatever the training seed."""

import random
from collections import Counter

import pytest

from ptrun.task.setting import LowResource
from ptrun.types import Example, Split


def drawn(labels, share):
    """The rule of DPT's released code, as the spec tells it, on Python's own generator."""
    by_label = {}
    for place, label in enumerate(labels):
        by_label.setdefault(label, []).append(place)
    random.seed(0)
    kept = []
    for places in by_label.values():
        random.shuffle(places)
        kept.extend(places[: int(share * len(places))])
    return sorted(kept)


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_low_resource_draws_as_the_released_code(share):
    """The classes first appear as c, a, b: an order of their names would draw others."""
    labels = [*"cab", *("abc"[i * i % 7 % 3] for i in range(400))]
    train = [Example(str(place), {}, label) for place, label in enumerate(labels)]
    state = random.getstate()
    wanted = drawn(labels, share)
    random.setstate(state)
    chosen = LowResource(share=share).choose(Split(train, [], [], {}), 7)
    assert [int(e.id) for e in chosen.train] == wanted
    assert random.getstate() == state
    sizes = Counter(labels)
    assert Counter(e.target for e in chosen.train) == {c: int(share * sizes[c]) for c in sizes}
