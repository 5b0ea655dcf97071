"""Equal texts within the parts of a split and between them, found by a normalised hash."""

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
    """What parts have twice, and what they share; JSON-like by `asdict`.

    Pairs of parts are named `train/test`, in the order of reading.
    """

    rows: Mapping[str, int]
    duplicates: Mapping[str, int]
    """Rows of a part whose text stands earlier in the same part."""
    conflicts: Mapping[str, int]
    """Texts of a part that stand with different targets."""
    shared: Mapping[str, int]
    """Texts that two parts have in common, each counted once; pairs with none are left out."""
    leaked: Mapping[str, int]
    """Rows of the second part of a pair whose text stands in the first."""
    identical: Sequence[str]
    """Pairs whose texts are the same, as where dev is test."""

    def record(self) -> dict[str, Any]:
        """Return plain data for a manifest."""
        return {**asdict(self), "identical": list(self.identical)}


def normalise(text: str) -> str:
    """Return a text in NFKC and lower case, white space collapsed."""
    return " ".join(unicodedata.normalize("NFKC", text).lower().split())


def fingerprint(example: Example) -> str:
    """Return 16 hex over all texts of an example and its group, whatever its target and id.

    A list of texts (words, options, entities) counts in its order; fields count in that of their
    names, so that the same row under a reordered YAML keeps its fingerprint. The group tells facts
    of two relations apart.
    """
    values = [*(example.fields[name] for name in sorted(example.fields)), example.group or ""]
    texts = (text for value in values for text in _texts(value))
    return hashlib.sha256("\x1f".join(texts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def overlaps(split: Split) -> Overlaps:
    """Return what the three parts of a run have in common."""
    return compare({"train": split.train, "dev": split.dev, "test": split.test})


def compare(parts: Mapping[str, Sequence[Example]]) -> Overlaps:
    """Return what any named parts have in common; empty ones share nothing."""
    prints = {name: [fingerprint(e) for e in examples] for name, examples in parts.items()}
    sets = {name: set(found) for name, found in prints.items()}
    pairs = [(a, b) for a, b in combinations(parts, 2) if sets[a] & sets[b]]
    return Overlaps(
        rows={name: len(found) for name, found in prints.items()},
        duplicates={name: len(found) - len(sets[name]) for name, found in prints.items()},
        conflicts={name: _conflicts(prints[name], parts[name]) for name in parts},
        shared={f"{a}/{b}": len(sets[a] & sets[b]) for a, b in pairs},
        leaked={f"{a}/{b}": sum(found in sets[a] for found in prints[b]) for a, b in pairs},
        identical=[f"{a}/{b}" for a, b in pairs if sets[a] == sets[b]],
    )


def _conflicts(prints: Sequence[str], examples: Sequence[Example]) -> int:
    pairs = {(found, repr(e.target)) for found, e in zip(prints, examples, strict=True)}
    return sum(count > 1 for count in Counter(found for found, _ in pairs).values())


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield normalise(value)
    elif isinstance(value, list | tuple):
        yield f"\x1e{len(value)}"
        yield from (text for item in value for text in _texts(item))
