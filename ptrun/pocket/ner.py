"""Named-entity rows: news-like sentences made of one or two facts.

Training rows use open entities and open paraphrases only; the other splits mix in reserved ones.
"""

import random
from typing import Any

from ptrun.pocket.facts import Fact
from ptrun.pocket.phrase import Manner, state, word
from ptrun.pocket.tagging import tagged
from ptrun.pocket.template import Slot, Text
from ptrun.pocket.world import world

SIZES = {"train": 3000, "validation": 400, "test": 600}
RESERVED = {"train": 0.0, "validation": 0.6, "test": 0.6}  # share of facts with reserved entities
HELD_OUT = {"train": 0.0, "validation": 0.1, "test": 0.1}  # share of held-out paraphrases
JOINTS = (", and ", ", while ", "; ", ". ", ". ")


def rows(split: str) -> list[dict[str, Any]]:
    """Return the rows of a split; no sentence occurs twice in the task."""
    seen = {tuple(row["tokens"]) for name in _before(split) for row in rows(name)}
    rng = random.Random(f"pocket ner {split} 1")
    pools = _by_relation(False), _by_relation(True)
    found: list[dict[str, Any]] = []
    while len(found) < SIZES[split]:
        tokens, tags = tagged(_sentence(split, pools, rng))
        if tuple(tokens) not in seen:
            seen.add(tuple(tokens))
            row = {"id": f"{split}-{len(found)}", "tokens": tokens, "ner_tags": tags}
            found.append(row)
    return found


def _before(split: str) -> list[str]:
    return list(SIZES)[: list(SIZES).index(split)]


def _by_relation(reserved: bool) -> list[list[Fact]]:
    groups: dict[str, list[Fact]] = {}
    for fact in world().facts:
        if fact.reserved == reserved:
            groups.setdefault(fact.relation, []).append(fact)
    return list(groups.values())


def _sentence(split: str, pools: tuple[list[list[Fact]], ...], rng: random.Random) -> Text:
    first = _clause(split, pools, rng)
    if rng.random() < 0.3:
        return _led(first, rng)
    joint = rng.choice(JOINTS)
    second = _clause(split, pools, rng)
    if joint != ". ":
        first = Text(first.text[:-1], first.spans)
        return first.join(_lowered(second), joint)
    return first.join(_led(second, rng), " ")


def _clause(split: str, pools: tuple[list[list[Fact]], ...], rng: random.Random) -> Text:
    fact = rng.choice(rng.choice(pools[rng.random() < RESERVED[split]]))
    return state(fact, Manner(held_out=rng.random() < HELD_OUT[split]), rng)


def _led(text: Text, rng: random.Random) -> Text:
    """Return the text after an opening such as "Last spring," in six of ten cases."""
    if rng.random() < 0.4:
        return text
    lead = word(Slot("lead", ""), rng)
    return Text(lead[:1].upper() + lead[1:]).join(_lowered(text))


def _lowered(text: Text) -> Text:
    """Return the text with a small first letter, unless a name or a title stands there."""
    first = text.text.split(" ", 1)[0]
    if any(s.start == 0 and s.named for s in text.spans) or first.rstrip(",") in _CAPITALS:
        return text
    return Text(text.text[:1].lower() + text.text[1:], text.spans)


_CAPITALS = frozenset({"Mr", "Mrs", "Miss", "Doctor", "Captain", "Professor", "Judge"})
