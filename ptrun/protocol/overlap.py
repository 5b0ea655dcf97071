"""Equal texts within and between the parts of a split, found by a hash of the normalised text."""

import hashlib
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptrun.types import Example, Split

_PRINT = np.dtype([("text", np.uint64), ("target", np.uint64)])


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
            if pair not in self.identical
        ]

    def record(self) -> dict[str, Any]:
        """Return plain data for a manifest."""
        return {**asdict(self), "identical": list(self.identical)}


def normalise(text: str) -> str:
    """Return a text in NFKC and lower case, with white space collapsed."""
    return " ".join(unicodedata.normalize("NFKC", text).lower().split())


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


def compare(parts: Mapping[str, Iterable[Example]]) -> Overlaps:
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
    return Overlaps(
        rows={name: len(rows) for name, rows in prints.items()},
        duplicates={name: len(rows) - len(texts[name]) for name, rows in prints.items()},
        conflicts={name: _conflicts(rows) for name, rows in prints.items()},
        shared={f"{a}/{b}": len(shared) for (a, b), shared in pairs.items()},
        leaked={
            f"{a}/{b}": int(np.isin(prints[b]["text"], shared).sum())
            for (a, b), shared in pairs.items()
        },
        identical=[f"{a}/{b}" for a, b in pairs if np.array_equal(texts[a], texts[b])],
    )


def _prints(examples: Iterable[Example]) -> NDArray[np.void]:
    """Return hashes of the text and the target of each example, sorted."""
    pairs = ((int(fingerprint(e), 16), _number(repr(e.target))) for e in examples)
    prints = np.fromiter(pairs, _PRINT)
    prints.sort()
    return prints


def _number(text: str) -> int:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def _distinct(ordered: NDArray[np.uint64]) -> NDArray[np.uint64]:
    new = np.append(True, ordered[1:] != ordered[:-1])
    return ordered.compress(new[: len(ordered)])


def _conflicts(prints: NDArray[np.void]) -> int:
    texts, targets = prints["text"], prints["target"]
    differ = (texts[1:] == texts[:-1]) & (targets[1:] != targets[:-1])
    return len(_distinct(texts[1:][differ]))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield normalise(value)
    elif isinstance(value, list | tuple):
        yield f"\x1e{len(value)}"
        yield from (text for item in value for text in _texts(item))
