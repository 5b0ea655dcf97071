"""A protocol decides which examples are used for selection and which for the reported score."""

import hashlib
import logging
import random
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, combinations
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ptrun.errors import UserError, names
from ptrun.task.columns import ExampleColumns, part_of, targets_of
from ptrun.task.dataset import SEVERAL, Task
from ptrun.types import Example, Labels, Split

_LOG = logging.getLogger(__name__)


class ClaimProtocol(Protocol):
    """How examples are selected on and reported."""

    select_best: bool
    """Whether the best dev evaluation is reported, or the last step."""
    disjoint: bool
    """Whether a test set that equals dev is rejected."""

    def split(self, task: Task, data_seed: int) -> Split:
        """Return the task's examples as train, dev and test."""


def _joined(protocol: ClaimProtocol, task: Any, data_seed: int) -> Split:
    """Return the splits of several tasks in one."""
    joined: Split = task.joined({n: protocol.split(t, data_seed) for n, t in task.tasks.items()})
    return joined


_FEWEST = 10  # smallest carved part, unless it exceeds a quarter of train


def carve(
    train: Sequence[Example],
    share: float,
    seed: int,
    part: Literal["dev", "test"] = "dev",
    *,
    by_class: bool = False,
) -> tuple[Sequence[Example], Sequence[Example]]:
    """Split train into the rest and a part, both in file order.

    The part has `share` of train, but at least 10 examples if that is at most a quarter: 2 of 20
    would select by chance. With `by_class` each label has the same share of both, to rounding, and
    train keeps at least one example of each. Examples of one group (the answers to one question)
    stay together, whatever their labels. So do examples of equal texts (`overlap.normalise`), which
    would be learned and then answered; a part may then be a few examples smaller.
    """
    has_groups = not isinstance(train, ExampleColumns) and any(e.group is not None for e in train)
    if by_class and has_groups:
        return _carve_groups(train, share, seed, part)
    size = max(round(share * len(train)), min(_FEWEST, len(train) // 4))
    classes = list(places_by_class(train).values()) if by_class else [list(range(len(train)))]
    if not 0 < size <= len(train) - len(classes):
        raise UserError(
            f"train has {len(train)} examples{f' of {len(classes)} labels' * by_class}, too few to "
            f"carve {share:.0%} for {part}; add examples, or a dev and a test set."
        )
    drawn = random.Random(f"carve:{seed}" if part == "dev" else f"carve {part}:{seed}")
    sizes = _sizes([len(places) for places in classes], size)
    copies = _copies(train)
    taken: set[int] = set()
    for places, k in zip(classes, sizes, strict=True):
        sample = _drawn(places, k, drawn, copies)
        taken |= sample
        if 2 * len(sample) < k:
            _LOG.warning(
                "%s has %d examples in place of %d%s: equal texts stay together",
                *(part, len(sample), k, f" of {train[places[0]].target}" if by_class else ""),
            )
    if not taken:
        raise UserError(f"train has too few different texts to carve {share:.0%} for {part}.")
    rest = [index for index in range(len(train)) if index not in taken]
    return part_of(train, rest), part_of(train, sorted(taken))


def _drawn(
    places: Sequence[int], size: int, drawn: random.Random, copies: Mapping[int, Sequence[int]]
) -> set[int]:
    """Return places of a class, each with all of equal texts; what is too much stays in train."""
    if not copies:
        return set(drawn.sample(places, size))
    firsts = [place for place in places if copies.get(place, [place])[0] == place]
    taken: set[int] = set()
    for place in drawn.sample(firsts, len(firsts)):
        equal = copies.get(place, [place])
        if len(taken) + len(equal) <= size:
            taken.update(equal)
    return taken


def _copies(train: Sequence[Example]) -> dict[int, list[int]]:
    """Return the places of each text that occurs more than once, by each of its places."""
    prints = np.fromiter(_texts_of(train), np.int64, len(train))
    texts, counts = np.unique(prints, return_counts=True)
    places: dict[int, list[int]] = {}
    for place in np.flatnonzero(np.isin(prints, texts[counts > 1])).tolist():
        if train[place].fields:
            places.setdefault(int(prints[place]), []).append(place)
    return {place: equal for equal in places.values() for place in equal}


def _carve_groups(
    train: Sequence[Example], share: float, seed: int, part: str
) -> tuple[list[Example], list[Example]]:
    """Split train into the rest and a share of its groups."""
    groups = list(dict.fromkeys(example.group for example in train))
    size = max(1, round(share * len(groups)))
    if not 0 < size < len(groups):
        raise UserError(f"train has {len(groups)} groups, too few to carve {share:.0%} for {part}.")
    taken = set(random.Random(f"carve groups for {part}:{seed}").sample(groups, size))
    rest = [example for example in train if example.group not in taken]
    return rest, [example for example in train if example.group in taken]


def classes_of(examples: Sequence[Example]) -> list[str | None]:
    """Return the class of each example: its label, or the rarest of its labels.

    So parts that are drawn by class keep rare labels. Examples with another target form one class,
    and those without any label another one.
    """
    several = [target for target in targets_of(examples) if isinstance(target, Labels)]
    counts = Counter(label for labels in several for label in labels)

    def class_of(target: Any) -> str | None:
        if isinstance(target, Labels) and target:
            return min(target, key=lambda label: (counts[label], label))
        return target if isinstance(target, str) else None

    return [class_of(target) for target in targets_of(examples)]


def places_by_class(examples: Sequence[Example]) -> dict[str | None, list[int]]:
    """Return the indices of each class, in order of first appearance."""
    places: dict[str | None, list[int]] = {}
    for index, name in enumerate(classes_of(examples)):
        places.setdefault(name, []).append(index)
    return places


def _sizes(counts: Sequence[int], size: int) -> list[int]:
    """Divide `size` over classes by largest remainder; each keeps one example in train."""
    total = sum(counts)
    sizes = [size * count // total for count in counts]
    while sum(sizes) < size:
        able = [i for i, count in enumerate(counts) if sizes[i] < count - 1]
        sizes[max(able, key=lambda i: (size * counts[i] - total * sizes[i], -sizes[i]))] += 1
    return sizes


# The honest protocol: dev selects, and test is scored once afterwards.
#
# If a data set publishes no labelled test set, its dev set becomes the test set and dev is carved
# from train, so no example is both selected on and reported. If it has only train, both are carved.
# Classes keep their shares.


class Honest:
    """Selection and report on disjoint examples.

    Args:
        dev_share: share of train to carve for a missing set; see `carve` for small ones.
    """

    select_best = True
    disjoint = True

    def __init__(self, *, dev_share: float = 0.1):
        self.dev_share = dev_share

    def split(self, task: Task, data_seed: int) -> Split:
        """Return train, dev and test; `data_seed` decides the carved sets."""
        if task.answer == SEVERAL:
            return _joined(self, task, data_seed)
        train = task.load("train")
        if task.has("dev") and task.has("test"):
            origin = {"dev": "dev of the task", "test": "test of the task"}
            return Split(train, task.load("dev"), task.load("test"), origin)
        if task.has("test"):
            rest, test, reported = train, task.load("test"), "test of the task"
        elif task.has("dev"):
            rest, test, reported = train, task.load("dev"), "dev of the task"
        else:
            rest, test, reported = self._carved(task, train, data_seed, "test")
        rest, dev, drawn = self._carved(task, rest, data_seed, "dev")
        return Split(rest, dev, test, {"dev": drawn, "test": reported})

    def _carved(
        self, task: Task, train: Sequence[Example], data_seed: int, part: Literal["dev", "test"]
    ) -> tuple[Sequence[Example], Sequence[Example], str]:
        """Return the rest of train, the carved part, and its origin."""
        by_class = task.stratified and bool(task.labels)  # refuses scores before it counts classes
        rest, taken = carve(train, self.dev_share, data_seed, part, by_class=by_class)
        share = f"{len(taken) / len(train):.0%} of "
        grouped = taken[0].group is not None
        return rest, taken, share + ("each class of train" if by_class and not grouped else "train")


# The papers' protocol: the splits that the authors used, from a task's `paper_splits`.
#
# If dev is both selected on and reported, every table says so.


class Paper:
    """Published dev selects; published test is reported, or dev if there is no test.

    If the authors drew dev from train, dev is empty until a setting draws it.
    """

    select_best = True
    disjoint = False

    def split(self, task: Task, data_seed: int) -> Split:
        """Return the published splits."""
        if task.answer == SEVERAL:
            return _joined(self, task, data_seed)
        train = task.load("train", paper=True)
        dev = task.load("dev", paper=True) if task.has("dev", paper=True) else []
        test = task.load("test", paper=True) if task.has("test", paper=True) else dev
        same = [(e.id, e.fields) for e in dev] == [(e.id, e.fields) for e in test]
        reported = "dev of the task, selected on it too" if same else "test of the task"
        return Split(train, dev, test, {"dev": "dev of the task", "test": reported})


# Equal texts within and between the parts of a split, found by a hash of the normalised text.

_PRINT = np.dtype([("text", np.int64), ("target", np.int64)])


@dataclass(frozen=True)
class Overlaps:
    """Repeated and shared texts of parts; pairs of parts are named `train/test`, in this order."""

    rows: Mapping[str, int]
    duplicates: Mapping[str, int]
    """Rows of a part whose text appears earlier in the same part."""
    conflicts: Mapping[str, int]
    """Texts of a part that appear with different targets."""
    shared: Mapping[str, int]
    """Distinct texts that two parts have in common; pairs with none are left out."""
    leaked: Mapping[str, int]
    """Rows of the second part of a pair whose text is in the first part."""
    identical: Sequence[str]
    """Pairs with the same texts, for example if dev is test."""

    @property
    def warnings(self) -> list[str]:
        """A line for each pair of parts that have texts in common."""
        remedy = {"train/dev": "dev", "train/test": "test", "dev/test": "test"}
        return [
            f"{pair} share {count:,} texts ({self.leaked[pair]:,} rows of {remedy[pair]}), so its "
            "score is too good; leave such rows out of one of them"
            for pair, count in self.shared.items()
        ]

    def record(self) -> dict[str, Any]:
        """Return plain data for a manifest."""
        return {**asdict(self), "identical": list(self.identical)}


def unseen(task: Task, split: Split) -> list[str]:
    """Return warnings of labels or tags that train has not, and of those that no score tells of."""
    scored = (("dev", split.dev), ("test", split.test))
    if task.answer == "number":
        equal = {name: set(map(float, targets_of(part))) for name, part in scored}
        return [
            f"{name} has one score, {scores.pop():g}, so there is no correlation, and 0 is shown"
            for name, scores in equal.items()
            if len(scores) == 1
        ]
    if task.answer not in ("label", "labels", "tags", "word_labels") or not split.train:
        return []
    learned = {label for target in targets_of(split.train) for label in _listed(target)}
    warnings = []
    for name, part in scored if task.answer == "label" else ():
        labels = set(map(str, targets_of(part)))
        lacking = sorted(label for label in map(str, learned) if label not in labels)
        if part and lacking:
            warnings.append(
                f"{name} has no example of {names(lacking)}, so its scores do not tell how well "
                f"{'they are' if len(lacking) > 1 else 'it is'} learned"
            )
    counts: Counter[str] = Counter()
    for target in chain(targets_of(split.dev), targets_of(split.test)):
        counts.update(str(label) for label in _listed(target) if label not in learned)
    if not counts:
        return warnings
    listed = names(f"{label} ({count:,})" for label, count in counts.most_common())
    noun = "tags" if task.answer == "tags" else "labels"
    warning = f"dev and test have {noun} that train never has, so no run learns them: {listed}"
    return [warning, *warnings]


def _listed(target: Any) -> Sequence[Any]:
    return target if isinstance(target, list | tuple) else [target]


def normalise(text: str) -> str:
    """Return a text in NFKC and lower case, with white space collapsed."""
    plain = text if text.isascii() else unicodedata.normalize("NFKC", text)
    return " ".join(plain.lower().split())


def fingerprint(example: Example) -> str:
    """Return 16 hex over all texts of an example and its group, without its target and id.

    Lists of texts (words, options, entities) are hashed in their order. Fields are hashed in the
    order of their names, so a reordered YAML file keeps the fingerprints. The group separates
    facts of two relations.
    """
    values = [*(example.fields[name] for name in sorted(example.fields)), example.group or ""]
    texts = (text for value in values for text in _texts(value))
    return hashlib.sha256("\x1f".join(texts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def overlaps(split: Split) -> Overlaps:
    """Return what the three parts of a run have in common."""
    return compare({"train": split.train, "dev": split.dev, "test": split.test})


def compare(parts: Mapping[str, Sequence[Example]]) -> Overlaps:
    """Return what named parts have in common; empty parts share nothing.

    Memory holds 16 bytes an example.
    """
    prints = {name: _prints(examples) for name, examples in parts.items()}
    texts = {name: _distinct(rows["text"]) for name, rows in prints.items()}
    common = {
        (a, b): np.intersect1d(texts[a], texts[b], assume_unique=True)
        for a, b in combinations(parts, 2)
    }
    pairs = {pair: shared for pair, shared in common.items() if shared.size}
    conflicts = {}
    for name, rows in prints.items():
        text, target = rows["text"], rows["target"]
        differ = (text[1:] == text[:-1]) & (target[1:] != target[:-1])
        conflicts[name] = len(_distinct(text[1:][differ]))
    return Overlaps(
        rows={name: len(rows) for name, rows in prints.items()},
        duplicates={name: len(rows) - len(texts[name]) for name, rows in prints.items()},
        conflicts=conflicts,
        shared={f"{a}/{b}": len(shared) for (a, b), shared in pairs.items()},
        leaked={
            f"{a}/{b}": int(np.isin(prints[b]["text"], shared).sum())
            for (a, b), shared in pairs.items()
        },
        identical=[f"{a}/{b}" for a, b in pairs if np.array_equal(texts[a], texts[b])],
    )


def _prints(examples: Sequence[Example]) -> NDArray[np.void]:
    """Return hashes of the text and the target of each example, sorted; of this process alone."""
    prints = np.empty(len(examples), _PRINT)
    prints["text"] = np.fromiter(_texts_of(examples), np.int64, len(examples))
    targets = (hash(repr(target)) for target in targets_of(examples))
    prints["target"] = np.fromiter(targets, np.int64, len(examples))
    prints.sort()
    return prints


def _texts_of(examples: Sequence[Example]) -> Iterator[int]:
    """Yield a hash of all texts of each example; equal texts are equal as in `fingerprint`."""
    if isinstance(examples, ExampleColumns):
        for texts in zip(*examples.texts(), strict=True):
            yield hash((*map(normalise, texts), ""))
        return
    for example in examples:
        values = (*(example.fields[name] for name in sorted(example.fields)), example.group or "")
        yield hash(tuple(text for value in values for text in _texts(value)))


def _distinct(ordered: NDArray[np.int64]) -> NDArray[np.int64]:
    new = np.append(True, ordered[1:] != ordered[:-1])
    return ordered.compress(new[: len(ordered)])


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield normalise(value)
    elif isinstance(value, list | tuple):
        yield f"\x1e{len(value)}"
        yield from (text for item in value for text in _texts(item))
    elif isinstance(value, Mapping):  # a turn of a conversation
        yield from _texts([*value.values()])
