"""Words and IOB2 tags from a text with spans."""

import re

from ptrun.pocket.entity import TAG_OF_KIND
from ptrun.pocket.template import Text

WORD = re.compile(r"\w+|[^\w\s]")


def tagged(text: Text) -> tuple[list[str], list[str]]:
    """Return the words of a text (punctuation apart) and one IOB2 tag for each."""
    named = {s.start: s for s in text.spans if s.named}
    tokens, tags, inside = [], [], None
    for match in WORD.finditer(text.text):
        tokens.append(match[0])
        if match.start() in named:
            inside = named[match.start()]
            tags.append(f"B-{_type(inside.entity)}")
        elif inside is not None and match.start() < inside.end:
            tags.append(f"I-{_type(inside.entity)}")
        else:
            tags.append("O")
    return tokens, tags


def _type(entity: str | None) -> str:
    assert entity is not None
    return TAG_OF_KIND[entity.split("-")[0]]
