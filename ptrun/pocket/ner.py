"""Named-entity rows: news-like sentences made of one or two facts.

Training rows use open entities and open paraphrases only; the other splits mix in reserved ones.
"""

from functools import cache

from ptrun.pocket.draw import Draw, Row
from ptrun.pocket.facts import Fact
from ptrun.pocket.phrase import word
from ptrun.pocket.tagging import tagged
from ptrun.pocket.template import Slot, Text
from ptrun.pocket.world import world

RESERVED = {"train": 0.0, "validation": 0.6, "test": 0.6}  # share of facts with reserved entities
JOINTS = (", and ", ", while ", "; ", ". ", ". ")
_CAPITALS = frozenset({"Mr", "Mrs", "Miss", "Doctor", "Captain", "Professor", "Judge"})


def make(draw: Draw) -> list[Row]:
    """Return one row."""
    tokens, tags = tagged(_text(draw))
    return [{"tokens": tokens, "ner_tags": tags}]


def _text(draw: Draw) -> Text:
    first = _clause(draw)
    if draw.rng.random() < 0.3:
        return _led(first, draw)
    joint = draw.rng.choice(JOINTS)
    second = _clause(draw)
    if joint == ". ":
        return first.join(_led(second, draw))
    return Text(first.text[:-1], first.spans).join(_lowered(second), joint)


def _clause(draw: Draw) -> Text:
    pools = _by_relation(draw.rng.random() < RESERVED[draw.split])
    return draw.sentence(draw.rng.choice(draw.rng.choice(pools)))


@cache
def _by_relation(reserved: bool) -> list[list[Fact]]:
    groups: dict[str, list[Fact]] = {}
    for fact in world().facts:
        if fact.reserved == reserved:
            groups.setdefault(fact.relation, []).append(fact)
    return list(groups.values())


def _led(text: Text, draw: Draw) -> Text:
    """Return the text after an opening such as "Last spring," in six of ten cases."""
    if draw.rng.random() < 0.4:
        return text
    lead = word(Slot("lead", ""), draw.rng)
    return Text(lead[:1].upper() + lead[1:]).join(_lowered(text))


def _lowered(text: Text) -> Text:
    """Return the text with a small first letter, unless it starts with a name or a title."""
    first = text.text.split(" ", 1)[0]
    if any(s.start == 0 and s.named for s in text.spans) or first.rstrip(",") in _CAPITALS:
        return text
    return Text(text.text[:1].lower() + text.text[1:], text.spans)
