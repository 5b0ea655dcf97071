"""Which examples a setting hands out: sizes per class, disjointness, and what decides them."""

import random
from collections import Counter

import pytest

from ptrun.errors import UserError
from ptrun.task.setting import FewShot, KShot, LowResource, SampleSize, ZeroShot
from ptrun.types import Example, Split
from tests.hashing import told


def made(counts):
    """Return a split whose train has these counts a class, mixed up."""
    labels = [label for label, count in counts.items() for _ in range(count)]
    train = [Example(f"t{i}", {}, labels[i * 7 % len(labels)]) for i in range(len(labels))]
    dev, test = ([Example(f"{p}{i}", {}, "a") for i in range(5)] for p in "dx")
    return Split(train, dev, test, {"dev": "dev of the task", "test": "test of the task"})


def ids(examples):
    return [e.id for e in examples]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("setting", "each"),
    [
        (FewShot(k=32), {"a": 11, "b": 11, "c": 10}),
        (FewShot(k=8, per_class=True), {"a": 8, "b": 8, "c": 8}),
    ],
)
def test_few_shots_are_balanced_disjoint_and_as_many_for_dev(setting, each, seed):
    split = made({"a": 101, "b": 101, "c": 101})
    chosen = setting.choose(split, seed)
    order = list(Counter(e.target for e in split.train))
    for part in (chosen.train, chosen.dev):
        counts = Counter(e.target for e in part)
        assert sorted(counts.values()) == sorted(each.values()) and set(counts) == set(order)
    assert not set(ids(chosen.train)) & set(ids(chosen.dev))
    assert chosen.test == split.test
    assert ids(chosen.train) == sorted(ids(chosen.train), key=ids(split.train).index)


def test_the_data_seed_alone_decides_a_sample():
    split = made({"a": 101, "b": 101})
    for setting in (FewShot(k=16), SampleSize(n=20)):
        one, same, other = (setting.choose(split, s) for s in (1, 1, 2))
        assert one == same and ids(one.train) != ids(other.train)


def test_fixed_subsets_are_the_same_for_every_data_seed():
    split = made({"a": 101, "b": 51})
    for setting in (LowResource(), KShot(k=30, dev=40)):
        assert setting.choose(split, 1) == setting.choose(split, 2)


def test_k_shots_take_others_for_dev_and_fewer_where_there_are_no_more():
    chosen = KShot(k=30, dev=1000).choose(made({"a": 50, "b": 50}), 0)
    assert (len(chosen.train), len(chosen.dev)) == (30, 70)
    assert not set(ids(chosen.train)) & set(ids(chosen.dev))


def test_the_files_of_a_variant_are_left_as_they_are():
    split = made({"a": 5})
    own = Split(split.train, split.dev, split.test, {"train": "files of idpg_lowres_100"})
    assert KShot(k=100).choose(own, 0) is own


def test_smaller_samples_are_parts_of_larger_ones():
    split = made({"a": 101, "b": 101})
    small, large = (set(ids(SampleSize(n=n).choose(split, 3).train)) for n in (10, 50))
    assert small < large


def test_zero_shot_has_a_test_only():
    chosen = ZeroShot().choose(made({"a": 5}), 0)
    assert not chosen.train and not chosen.dev and len(chosen.test) == 5


SCARCE = {
    "80 examples of 'b'.*there are 16": lambda s: FewShot(k=40, per_class=True).choose(s, 0),
    "train has 117 examples": lambda s: KShot(k=500).choose(s, 0),
    "but train has 117": lambda s: SampleSize(n=500).choose(s, 0),
    "use 1 or more": lambda s: FewShot(k=0),
    "more than 0": lambda s: LowResource(share=0),
}


@pytest.mark.parametrize(("message", "make"), SCARCE.items())
def test_what_cannot_be_drawn_is_refused(message, make):
    with pytest.raises(UserError, match=message):
        make(made({"a": 101, "b": 16}))


def test_a_sample_does_not_depend_on_the_hash_seed():
    code = "from tests.task.test_settings import *\ns = made({'a': 101, 'b': 101})\n"
    code += "print([ids(x.choose(s, 1).train) for x in (FewShot(k=9), LowResource(), KShot(k=9))])"
    assert len(told(code)) == 1


@pytest.mark.parametrize("setting", [FewShot(k=8), FewShot(k=4, per_class=True), KShot(k=8, dev=8)])
def test_no_text_of_train_is_drawn_for_dev(setting):
    texts = [f"{'Text' if i % 3 else 'text '} {i // 3}" for i in range(60)]
    train = [Example(f"t{i}", {"text": text}, "ab"[i % 2]) for i, text in enumerate(texts)]
    split = Split(train, [], [Example("x", {"text": "y"}, "a")], {})
    for seed in range(8):
        chosen = setting.choose(split, seed)
        learned, selected = (
            {e.fields["text"].lower().replace("  ", " ") for e in part}
            for part in (chosen.train, chosen.dev)
        )
        assert not learned & selected and len(chosen.dev) == len(chosen.train) == 8


def test_a_class_without_other_texts_is_refused():
    train = [Example(f"t{i}", {"text": "same"}, "ab"[i % 2]) for i in range(60)]
    with pytest.raises(UserError, match="its text is in train too"):
        FewShot(k=8).choose(Split(train, [], train[:1], {}), 1)


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
