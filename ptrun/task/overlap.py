"""Equal texts within and between the parts of a split, found by a hash of the normalised text."""

import hashlib
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from ptrun.types import Example, Split


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


def compare(parts: Mapping[str, Sequence[Example]]) -> Overlaps:
    """Return what named parts have in common; empty parts share nothing."""
    prints = {name: [fingerprint(e) for e in examples] for name, examples in parts.items()}
    sets = {name: set(hashes) for name, hashes in prints.items()}
    pairs = [(a, b) for a, b in combinations(parts, 2) if sets[a] & sets[b]]
    return Overlaps(
        rows={name: len(hashes) for name, hashes in prints.items()},
        duplicates={name: len(hashes) - len(sets[name]) for name, hashes in prints.items()},
        conflicts={name: _conflicts(prints[name], parts[name]) for name in parts},
        shared={f"{a}/{b}": len(sets[a] & sets[b]) for a, b in pairs},
        leaked={f"{a}/{b}": sum(one in sets[a] for one in prints[b]) for a, b in pairs},
        identical=[f"{a}/{b}" for a, b in pairs if sets[a] == sets[b]],
    )


def _conflicts(prints: Sequence[str], examples: Sequence[Example]) -> int:
    pairs = {(one, repr(e.target)) for one, e in zip(prints, examples, strict=True)}
    return sum(count > 1 for count in Counter(one for one, _ in pairs).values())


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield normalise(value)
    elif isinstance(value, list | tuple):
        yield f"\x1e{len(value)}"
        yield from (text for item in value for text in _texts(item))
