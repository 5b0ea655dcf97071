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


SIZES = st.integers(1, 60)
SETTINGS = st.one_of(
    st.builds(FewShot, k=st.integers(1, 40), per_class=st.booleans()),
    st.builds(KShot, k=SIZES, dev=SIZES),
    st.builds(LowResource, share=st.floats(0.001, 1.0)),
    st.builds(SampleSize, n=SIZES),
)


@given(LABELS, SEEDS, SETTINGS)
def test_a_sample_is_disjoint_in_file_order_and_of_its_seed_or_refused(labels, seed, setting):
    whole = split(labels)
    try:
        sample = setting.choose(whole, seed)
    except UserError as error:
        assert "setting." in str(error)
        return
    places = {e.id: i for i, e in enumerate(whole.train)}
    assert sample == setting.choose(whole, seed) and sample.test == whole.test
    train, dev = (
        [places[e.id] for e in part if e.id in places] for part in (sample.train, sample.dev)
    )
    assert train == sorted(set(train)) and len(train) == len(sample.train)
    assert dev == sorted(set(dev)) and not set(dev) & set(train)


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
