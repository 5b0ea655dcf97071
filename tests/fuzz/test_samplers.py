"""Samplers: sizes are as asked, parts are disjoint, only the data seed decides, order is kept."""

from collections import Counter
from types import SimpleNamespace

from hypothesis import assume, given
from hypothesis import strategies as st

from ptrun.errors import UserError
from ptrun.task.protocol import carve
from ptrun.task.setting import FewShot, KShot, LowResource, SampleSize
from ptrun.training.member import batches, shuffled
from ptrun.types import Example, Split

LABELS = st.lists(st.sampled_from("aab"), max_size=60)
SEEDS = st.integers(0, 2**32 - 1)


def split(labels):
    train = [Example(f"t{i}", {}, label) for i, label in enumerate(labels)]
    return Split(train, [Example("d", {}, "a")], [Example("x", {}, "a")], {})


def chosen(setting, given_split, seed):
    """Return a sample after the checks that all settings share; None if it is refused."""
    try:
        found = setting.choose(given_split, seed)
    except UserError as error:
        assert "setting." in str(error)
        return None
    places = {e.id: i for i, e in enumerate(given_split.train)}
    assert found == setting.choose(given_split, seed) and found.test == given_split.test
    train = [places[e.id] for e in found.train]
    assert train == sorted(set(train))
    dev = [places[e.id] for e in found.dev if e.id in places]
    assert dev == sorted(set(dev)) and not set(dev) & set(train)
    return found


@given(LABELS, SEEDS, st.integers(1, 40), st.booleans())
def test_few_shots(labels, seed, k, per_class):
    found = chosen(FewShot(k=k, per_class=per_class), split(labels), seed)
    counts = Counter(labels)
    share = {label: k for label in counts}
    if not per_class:
        share = {label: k // len(counts) + (i < k % len(counts)) for i, label in enumerate(counts)}
    if found is None:
        assert any(counts[label] < 2 * size for label, size in share.items())
        return
    for part in (found.train, found.dev):
        assert Counter(e.target for e in part) == Counter({one: n for one, n in share.items() if n})


@given(LABELS, SEEDS, st.integers(1, 60), st.integers(1, 60))
def test_k_shots_do_not_depend_on_the_seed(labels, seed, k, dev):
    found = chosen(KShot(k=k, dev=dev), split(labels), seed)
    assert (found is None) == (len(labels) <= k)
    if found is not None:
        assert len(found.train) == k and len(found.dev) == min(dev, len(labels) - k)
        assert found == chosen(KShot(k=k, dev=dev), split(labels), seed + 1)


@given(LABELS, SEEDS, st.floats(0.001, 1.0))
def test_low_resource_keeps_a_share_of_each_class(labels, seed, share):
    found = chosen(LowResource(share=share), split(labels), seed)
    wanted = {label: int(share * count) for label, count in Counter(labels).items()}
    assert (found is None) == (not any(wanted.values()))
    if found is not None:
        counts = Counter(e.target for e in found.train)
        assert {label: counts[label] for label in wanted} == wanted


@given(LABELS, SEEDS, st.integers(1, 60), st.integers(1, 60))
def test_a_larger_sample_contains_a_smaller_one(labels, seed, one, other):
    small, large = sorted((one, other))
    whole = chosen(SampleSize(n=large), split(labels), seed)
    assert (whole is None) == (len(labels) < large)
    if whole is not None:
        part = chosen(SampleSize(n=small), split(labels), seed)
        assert {e.id for e in part.train} <= {e.id for e in whole.train}
        assert len(part.train) == small and len(whole.train) == large


@given(LABELS, SEEDS, st.floats(0.01, 0.9), st.sampled_from(["dev", "test"]), st.booleans())
def test_a_carved_part_and_the_rest_are_the_whole(labels, seed, share, part, by_class):
    train = split(labels).train
    try:
        rest, taken = carve(train, share, seed, part, by_class=by_class)
    except UserError:
        return
    assert taken and rest and {e.id for e in [*rest, *taken]} == {e.id for e in train}
    assert len(rest) + len(taken) == len(train)
    assert (rest, taken) == carve(train, share, seed, part, by_class=by_class)
    size = max(round(share * len(train)), min(10, len(train) // 4))
    assert len(taken) == size
    if by_class:
        left = Counter(e.target for e in rest)
        for label, count in Counter(labels).items():
            kept = count - size * count / len(labels)
            assert left[label] >= 1 and abs(left[label] - kept) <= len(set(labels))


@given(
    st.lists(st.sampled_from(["", "one", "two"]), min_size=1, max_size=40),
    *(st.integers(1, 12), SEEDS, st.integers(0, 9), st.booleans()),
)
def test_an_epoch_reads_every_example_once(sets, size, seed, epoch, drop_last):
    features = [SimpleNamespace(facts={"set": own}) for own in sets]
    found = batches(features, size, seed, epoch, drop_last=drop_last)
    read = [found[i] for i in range(len(found))]
    places = [place for batch in read for place in batch]
    assert len(set(places)) == len(places) and all(1 <= len(batch) <= size for batch in read)
    assert all(len({sets[place] for place in batch}) == 1 for batch in read)
    whole = any(len(batch) == size for batch in read)
    assert len(places) == len(sets) or (drop_last and all(len(b) == size for b in read) and whole)


@given(st.integers(0, 60), SEEDS, st.integers(0, 99))
def test_an_order_is_a_function_of_seed_and_epoch(count, seed, epoch):
    order = shuffled(count, seed, epoch).tolist()
    assert sorted(order) == list(range(count)) and order == shuffled(count, seed, epoch).tolist()
    assume(count > 30)
    assert order != shuffled(count, seed, epoch + 1).tolist()
    assert order != shuffled(count, seed + 1, epoch).tolist()
