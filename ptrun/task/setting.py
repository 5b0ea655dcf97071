"""A setting decides which examples a run may use."""

import random
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, zip_longest

from ptrun.errors import UserError
from ptrun.task.columns import part_of
from ptrun.task.protocol import classes_of, fingerprint, places_by_class
from ptrun.types import Example, Split


class Setting(ABC):
    """A data budget.

    `variant` names the subfolder of `data_dir` with the setting's own files. `required` is False if
    the setting draws a sample when these files are missing.
    """

    variant: str | None = None
    required: bool = False

    @abstractmethod
    def choose(self, split: Split, data_seed: int) -> Split:
        """Return the examples a run may use; only `data_seed` decides a sample."""


def apart(
    examples: Sequence[Example], train: Sequence[int], dev: Sequence[int], rng: random.Random
) -> list[int]:
    """Return dev with another example of the class in place of each whose text is in train."""
    learned = {fingerprint(examples[i]) for i in train if examples[i].fields}
    shared = {i for i in dev if fingerprint(examples[i]) in learned}
    if not shared:
        return list(dev)
    taken = {*train, *dev}
    fresh: dict[Hashable, list[int]] = {}
    for label, places in places_by_class(examples).items():
        if unused := [i for i in places if i not in taken]:
            fresh[label] = rng.sample(unused, len(unused))
    disjoint = [i for i in dev if i not in shared]
    classes = classes_of(examples)
    for place in sorted(shared):
        others = fresh.get(classes[place], [])
        while others and fingerprint(examples[others[-1]]) in learned:
            others.pop()
        if not others:
            raise UserError(
                f"{examples[place].id}: its text is in train too, and no other is left."
            )
        disjoint.append(others.pop())
    return disjoint


def drawn(split: Split, origin: Mapping[str, str], **parts: Sequence[int]) -> Split:
    """Return the split with parts that are drawn from train by index, in file order."""
    examples = {part: part_of(split.train, sorted(at)) for part, at in parts.items()}
    return replace(split, origin={**split.origin, **origin}, **examples)


class Full(Setting):
    """Keeps train, dev and test unchanged."""

    def choose(self, split: Split, data_seed: int) -> Split:
        """Return the split."""
        return split


def shots(
    train: Sequence[Example], count: int, seed: int, key: str, *, balanced: bool = True
) -> list[Example]:
    """Return examples of train in random order, if `balanced` as many of each class, or one fewer.

    `key` is the option that asks for so many.
    """
    if count > len(train):
        raise UserError(f"{key}: there are {len(train)} examples in train.")
    rng = random.Random(f"demonstrations:{seed}")
    classes = list(places_by_class(train).values()) if balanced else [list(range(len(train)))]
    rng.shuffle(classes)
    turns = chain(*zip_longest(*(rng.sample(places, len(places)) for places in classes)))
    places = [place for place in turns if place is not None][:count]
    return [train[place] for place in rng.sample(places, count)]


# Few shots: k training and k dev examples from train, balanced over labels.
#
# As in Gao et al. and PPT, dev is as large as train and disjoint from it. Test does not change.


class FewShot(Setting):
    """k examples for training and k for selection.

    Args:
        k: examples in total, or per class with `per_class`. A remainder goes to the classes that
            appear first.
        per_class: whether k counts per class, as in PPT for more than five classes (k=8).
    """

    def __init__(self, *, k: int, per_class: bool = False):
        if k < 1:
            raise UserError(f"setting.k is {k}; use 1 or more.")
        self.k, self.per_class = k, per_class

    def choose(self, split: Split, data_seed: int) -> Split:
        """Return k examples for train and k different ones for dev."""
        rng = random.Random(f"few shot:{data_seed}")
        classes = places_by_class(split.train)
        train, dev, count = list[int](), list[int](), len(classes)
        sizes = [self.k // count + (i < self.k % count) for i in range(count)]
        sizes = [self.k] * count if self.per_class else sizes
        for (label, indices), size in zip(classes.items(), sizes, strict=True):
            if len(indices) < 2 * size:
                whose = f" of {label!r}" if label is not None else ""
                raise UserError(
                    f"setting.k is {self.k}: train and dev need {2 * size} examples{whose}, but "
                    f"there are {len(indices)}.\nUse a smaller setting.k, or setting=full."
                )
            sample = rng.sample(indices, 2 * size)
            train, dev = train + sample[:size], dev + sample[size:]
        dev = apart(split.train, train, dev, rng)
        kind = "of each class" if self.per_class else "balanced"
        origin = {"train": f"{self.k} {kind}", "dev": f"{self.k} others of train, {kind}"}
        return drawn(split, origin, train=train, dev=dev)


class FewGlue(Full):
    """The 32 training and 32 dev examples of PET and P-tuning, from the files of FewGLUE_32dev.

    They are `<data_dir>/fewglue/<task>/{train,validation}.jsonl`. The published dev set of the task
    is the test set. The classes are skewed on purpose (CB has 3 neutral, WSC no negative training
    examples) and stay so.
    """

    variant: str | None = "fewglue"
    required = True


# K training and 1,000 dev examples in total, equal for all seeds (IDPG's low-resource setting).
#
# They come from the paper's files in `<data_dir>/idpg_lowres_<k>/<task>/` if these exist. Otherwise
# as many are drawn with a fixed seed. The result records which.


class KShot(Setting):
    """A fixed sample of train, not balanced.

    Args:
        k: training examples.
        dev: examples of train for selection; fewer if train is too small.
        subset_seed: seed of the sample, independent of the run's seeds.
    """

    def __init__(self, *, k: int, dev: int = 1000, subset_seed: int = 0):
        if k < 1 or dev < 1:
            raise UserError(f"setting.k is {k} and setting.dev {dev}; use 1 or more.")
        self.k, self.dev, self.subset_seed = k, dev, subset_seed
        self.variant: str | None = f"idpg_lowres_{k}"

    def choose(self, split: Split, data_seed: int) -> Split:
        """Return k training examples, and others for dev."""
        if split.origin.get("train") == f"files of {self.variant}":
            return split
        if len(split.train) <= self.k:
            raise UserError(
                f"setting.k is {self.k}, but train has {len(split.train)} examples; use fewer."
            )
        count = min(self.dev, len(split.train) - self.k)
        rng = random.Random(f"k shot:{self.subset_seed}")
        sample = rng.sample(range(len(split.train)), self.k + count)
        origin = {"train": f"{self.k} of train", "dev": f"{count} others of train"}
        train = sample[: self.k]
        dev = apart(split.train, train, sample[self.k :], rng)
        return drawn(split, origin, train=train, dev=dev)


# Low resource: a share of each class of train (DPT: 10 %); dev and test do not change.
#
# As in DPT, one generator with a fixed seed shuffles the classes in order of first appearance, and
# the first int(share x size) examples of each are kept. So every run has the same subset. A task
# without classes, such as QUOREF, is one class.


class LowResource(Setting):
    """A fixed share of each class.

    Args:
        share: share of each class, more than 0 and at most 1.
        subset_seed: seed of the subset, independent of the run's seeds.
    """

    def __init__(self, *, share: float = 0.1, subset_seed: int = 0):
        if not 0 < share <= 1:
            raise UserError(f"setting.share is {share}; use more than 0 and at most 1.")
        self.share, self.subset_seed = share, subset_seed

    def choose(self, split: Split, data_seed: int) -> Split:
        """Return the split with a share of train."""
        rng = random.Random(self.subset_seed)
        sample: list[int] = []
        for indices in places_by_class(split.train).values():
            rng.shuffle(indices)
            sample += indices[: int(self.share * len(indices))]
        if not sample:
            raise UserError(f"setting.share is {self.share}: none of {len(split.train)} is left.")
        return drawn(split, {"train": f"{self.share:.0%} of each class"}, train=sample)


class SampleSize(Setting):
    """n examples of train, drawn with the data seed; larger samples contain smaller ones.

    `setting=sample_size setting.n=100,1000` makes a curve.
    """

    def __init__(self, *, n: int):
        if n < 1:
            raise UserError(f"setting.n is {n}; use 1 or more.")
        self.n = n

    def choose(self, split: Split, data_seed: int) -> Split:
        """Return the split with n training examples."""
        if len(split.train) < self.n:
            raise UserError(f"setting.n is {self.n}, but train has {len(split.train)} examples.")
        order = list(range(len(split.train)))
        random.Random(f"sample size:{data_seed}").shuffle(order)
        return drawn(split, {"train": f"{self.n} of train"}, train=order[: self.n])


class ZeroShot(Setting):
    """No examples for training or selection."""

    def choose(self, split: Split, data_seed: int) -> Split:
        """Return the split with only its test examples."""
        origin = {"train": "none", "dev": "none", "test": split.origin.get("test", "")}
        return replace(split, train=[], dev=[], origin=origin)
