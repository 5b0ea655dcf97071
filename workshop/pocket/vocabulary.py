"""The WordPiece vocabulary: words of the corpus, word parts, and every printable character."""

import re
import string
from collections import Counter
from collections.abc import Iterable

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORD = re.compile(r"\w+|[^\w\s]")
LEAST_COUNT = 20
PARTS = 160  # word beginnings, and as many endings


def vocabulary(sentences: Iterable[str], size: int) -> list[str]:
    """Return at most `size` entries; any ASCII text can be written with them.

    Words come by falling count, ties by the alphabet, so the result depends on the text alone.
    """
    counts = Counter(word for sentence in sentences for word in WORD.findall(sentence))
    characters = [c for c in string.printable if not c.isspace()]
    inner = [f"##{c}" for c in string.ascii_letters + string.digits]
    entries = dict.fromkeys([*SPECIALS, *characters, *inner, *_parts(counts)])
    for word, count in _ranked(counts):
        if count >= LEAST_COUNT and len(entries) < size:
            entries[word] = None
    return list(entries)


def _parts(counts: Counter[str]) -> list[str]:
    """Return frequent beginnings, and endings with ##, of the different words."""
    beginnings: Counter[str] = Counter()
    endings: Counter[str] = Counter()
    for word in counts:
        for size in range(2, min(6, len(word))):
            beginnings[word[:size]] += size - 1
            endings[f"##{word[-size:]}"] += size - 1
    return [part for group in (beginnings, endings) for part, _ in _ranked(group)[:PARTS]]


def _ranked(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
