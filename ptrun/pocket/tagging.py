"""Words and IOB2 tags from a text with spans."""

from ptrun.pocket.entity import TAG_OF_KIND
from ptrun.pocket.template import Text
from ptrun.pocket.vocabulary import WORD


def tagged(text: Text) -> tuple[list[str], list[str]]:
    """Return the words of a text (punctuation apart) and one IOB2 tag for each."""
    named = {s.start: s for s in text.spans if s.named}
    tokens, tags, end, kind = [], [], 0, ""
    for match in WORD.finditer(text.text):
        tokens.append(match[0])
        if span := named.get(match.start()):
            assert span.entity is not None
            end, kind = span.end, TAG_OF_KIND[span.entity.split("-")[0]]
            tags.append(f"B-{kind}")
        else:
            tags.append(f"I-{kind}" if match.start() < end else "O")
    return tokens, tags
