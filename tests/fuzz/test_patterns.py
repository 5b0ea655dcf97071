"""Patterns: any text is read or refused, a written one is read back, and a row fits its room."""

from functools import cache

from hypothesis import assume, example, given
from hypothesis import strategies as st

from ptrun.errors import UserError
from ptrun.pattern.encoding import Encoder
from ptrun.pattern.pattern import parse, read_pvps
from ptrun.pattern.slots import FILTERS, LISTS, Border, Field, Hole, LiteralText
from tests.fuzz.strategies import JSON, TEXTS, fewer, read_or_refused
from tests.pattern import tokenizers

PIECES = ["{", "}", "||", "|", "~", " ", ":", "mask", "masks", "soft", "3", "a", "options"]
PIECES += ["words", "letters", "or", "gap", "fact", "strip_end", "{~a}", "{mask}", "{soft:2}"]
WRITTEN = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=12).map("".join)
LITERAL = st.text(
    st.characters(exclude_characters="{}|", exclude_categories=["Cs"]), min_size=1, max_size=9
)
HOLES = st.sampled_from([Hole("mask"), Hole("masks"), Hole("soft"), Hole("soft", 3)])
FIELDS = st.builds(
    Field,
    st.sampled_from(["a", "b", "été"]),
    st.lists(st.sampled_from(sorted(FILTERS)), max_size=2).map(tuple),
    st.booleans(),
    st.none(),
)
LISTED = st.builds(
    Field, st.just("options"), st.just(()), st.just(False), st.sampled_from(sorted(LISTS))
)
KINDS = ("bert", "roberta", "gpt2", "t5", "cpm2")
EXAMPLES = st.fixed_dictionaries(
    {"a": TEXTS, "b": TEXTS, "été": TEXTS, "options": st.lists(TEXTS, min_size=1, max_size=18)}
)


def spelled(part):
    """Return a part as it is typed."""
    if isinstance(part, LiteralText):
        return part.text
    if isinstance(part, Border):
        return "||"
    if isinstance(part, Hole):
        return f"{{{part.kind}}}" if part.count == 1 else f"{{soft:{part.count}}}"
    filters = [*part.filters, *([part.ending] if part.ending else [])]
    return "{" + "~" * part.shortenable + "|".join([part.name, *filters]) + "}"


@st.composite
def patterns(draw, slots=FIELDS | HOLES):
    """Draw parts that alternate between literal text and slots, with a border perhaps."""
    parts = [draw(FIELDS), *draw(st.lists(slots | LITERAL.map(LiteralText), max_size=6))]
    parts = draw(st.permutations(parts))
    if draw(st.booleans()):
        parts = [draw(FIELDS), *parts[:3], Border(), *parts[3:], draw(FIELDS)]
    kept = [p for p, after in zip(parts, [*parts[1:], None], strict=True) if not both(p, after)]
    assume(not any(isinstance(p, LiteralText) and beside_border(kept, p) for p in kept))
    return kept


def both(part, after):
    return isinstance(part, LiteralText) and isinstance(after, LiteralText)


def beside_border(parts, part):
    """Return whether a literal loses spaces to a border."""
    at = parts.index(part)
    near = parts[max(0, at - 1) : at + 2]
    return any(isinstance(p, Border) for p in near) and part.text != part.text.strip(" \t")


@given(WRITTEN)
@example("{soft:" + "9" * 5000 + "} {a}")
@example("{soft:999999999999} {a}")
def test_any_text_is_a_pattern_or_refused(text):
    pattern = read_or_refused(parse, text)
    if pattern is not None:
        assert pattern.text == text and pattern.fields and pattern == parse(text)
        assert pattern.softs <= 100_000 * text.count("soft")  # a row has no room for more


@given(patterns(FIELDS | HOLES | LISTED))
def test_a_written_pattern_is_read_back(parts):
    pattern = parse("".join(map(spelled, parts)))
    assert list(pattern.parts) == parts
    holes = [part for part in parts if isinstance(part, Hole)]
    assert pattern.masks == sum(hole.kind != "soft" for hole in holes)
    assert pattern.softs == sum(hole.count for hole in holes if hole.kind == "soft")


@given(patterns(), EXAMPLES)
def test_a_rendered_example_is_the_pattern_with_its_texts(parts, fields):
    pieces = parse("".join(map(spelled, parts))).render(fields)
    shown = [part.text if isinstance(part, LiteralText) else "" for part in parts]
    for i, part in enumerate(parts):
        if isinstance(part, Field):
            shown[i] = part.filtered(fields[part.name])
    assert squeezed(*(piece.text for piece in pieces)) == squeezed(*shown)
    assert [p.kind for p in pieces if p.kind in ("mask", "masks", "soft")] == [
        part.kind for part in parts if isinstance(part, Hole)
    ]
    assert all(p.text == p.text.strip(" \t") for p in pieces)


def squeezed(*texts):
    return "".join("".join(texts).split())


@cache
def encoder(kind):
    return Encoder(getattr(tokenizers, kind)())


@given(patterns(FIELDS | HOLES | LISTED), EXAMPLES, st.sampled_from(KINDS), st.integers(-2, 40))
@example([Field("a", (), False, None), Hole("mask")], {"a": ""}, "gpt2", -1)
def test_a_row_fits_its_room_or_is_refused(parts, fields, kind, room):
    pattern = parse("".join(map(spelled, parts)))
    try:
        pieces = pattern.render(fields)
        whole = encoder(kind).encode(pieces, 10**6, masks=2)
    except UserError:
        return
    for rule in ("longest", "in_proportion"):
        row = read_or_refused(encoder(kind).encode, pieces, room, 2, rule)
        if row is not None:
            assert len(row.ids) <= room and row.cut == len(whole.ids) - len(row.ids)
            assert len(row.masks) == len(whole.masks) and len(row.softs) == pattern.softs
            assert row.types is None or len(row.types) == len(row.ids)
            assert all(0 <= place < len(row.ids) for place in [*row.masks, *row.softs])


@fewer(2)
@given(
    JSON
    | st.dictionaries(
        st.sampled_from(["own", "x"]),
        st.fixed_dictionaries(
            {},
            optional={"pattern": WRITTEN | JSON, "words": JSON, "rule": JSON, "shorten": JSON},
        ),
    )
)
@example({"own": {"pattern": "{a} {mask}", "words": {"x": "good"}}})
@example({"own": {"pattern": "{a} {mask}", "words": {"x": [1]}}})
@example({"own": {"pattern": "{a} {mask}", "words": ["good"]}})
@example({"own": {"pattern": "{a} {mask}", "shorten": ["longest"]}})
@example({"own": {"pattern": "{a} {mask}", "words": {"x": ["good"]}, "rule": ["first"]}})
def test_any_node_is_a_pvp_or_refused(node):
    read_or_refused(read_pvps, node)
