"""What several targets draw: texts, bytes that resemble a file, and how a reader may end."""

from hypothesis import settings
from hypothesis import strategies as st

from ptrun.errors import UserError

WORDS = st.sampled_from(["film", "good", "a", "Ann", "x", "猫", "café", "1,000", "-", "🙂"])
TEXTS = st.text(max_size=30) | st.lists(WORDS, max_size=6).map(" ".join)
ODD = st.sampled_from(["\0", "\r", "\x85", "\u2028", "\ufeff", "\x1b[2J", "\u202e", '"', "'", "\\"])
LINES = st.lists(TEXTS | ODD, max_size=4).map("".join)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOATS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
OBJECTS = st.dictionaries(TEXTS, JSON, max_size=4)


def fewer(part):
    """Return the settings of a slow target: one of `part` examples."""
    return settings(max_examples=max(5, settings.default.max_examples // part))


@st.composite
def spoilt(draw, right):
    """Draw bytes of a right file with some changed, cut, put in or taken from any place."""
    content = bytearray(draw(right))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(content)))
        kind = draw(st.sampled_from(["put", "cut", "change", "drop"]))
        if kind == "put":
            content[at:at] = draw(st.binary(max_size=5))
        elif kind == "cut":
            del content[at:]
        elif kind == "drop":
            del content[at : at + draw(st.integers(1, 4))]
        elif at < len(content):
            content[at] ^= 1 << draw(st.integers(0, 7))
    return bytes(content)


def read_or_refused(read, *arguments):
    """Return what a reader gives, or None after an error in words of at most five lines."""
    try:
        return read(*arguments)
    except UserError as error:
        told = str(error)
        assert told.strip() and len(told.splitlines()) <= 5, told
        return None
