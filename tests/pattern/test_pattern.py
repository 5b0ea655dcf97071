"""Patterns read as they are written, refuse what they cannot mean, and render every slot."""

# ruff: noqa: RUF001  full-width punctuation is what is tested

import pytest

from ptrun.errors import UserError
from ptrun.pattern.pattern import parse
from ptrun.pattern.slots import FILTERS


def shown(text, fields, words=()):
    """Return pieces as a line: `_` before a piece means a space, `~` that it may be shortened."""
    return [
        ("_" if p.spaced else "") + ("~" if p.shortenable else "") + (p.text or f"<{p.kind}>")
        for p in parse(text).render(fields, words)
    ]


def test_a_pattern_knows_its_fields_masks_and_vectors():
    pattern = parse("{soft:3} {~a} {soft} {b|capital} {a} {mask} {masks}")
    assert pattern.fields == ("a", "b") and (pattern.masks, pattern.softs) == (2, 4)
    assert pattern.many_masks and not parse("{a} {mask}").many_masks
    assert parse("{template|fact}").fields == ("template", "sub_label")
    assert parse("{query|gap} {words|commas}").masks == 1
    assert parse("{a}{words|or}").fields == ("a",)
    assert parse("{a} {mask}") == parse("{a} {mask}")


def test_spaces_belong_to_what_follows():
    fields = {"s": " good film ", "empty": "  "}
    assert shown("{s}? It was {mask}.", fields) == ["good film", "? It was", "_<mask>", "."]
    assert shown("{~s}{mask}", fields) == ["~good film", "<mask>"]
    assert shown("a {empty} b{empty}c", fields) == ["a", "_b", "c"]
    assert shown("{s}\n{s}", fields) == ["good film", "\n", "good film"]


def test_the_border_starts_a_segment():
    pieces = parse("{a} : || {b} {mask}").render({"a": "x", "b": "y"})
    assert [p.segment for p in pieces] == [0, 0, 1, 1]
    assert [p.spaced for p in pieces] == [False, True, False, True]


def test_a_group_is_left_out_when_its_fields_are_empty():
    text = "{~a}[[ Input: {b}.]][[ ({b}, {c|capital})]] Answer: {mask}"
    full = {"a": "Add", "b": "3", "c": "x"}
    end = ["_Answer:", "_<mask>"]
    assert shown(text, full) == ["~Add", "_Input:", "_3", ".", "_(", "3", ",", "_X", ")", *end]
    some = shown(text, full | {"b": ""})
    assert some == ["~Add", "_(", ",", "_X", ")", *end]
    assert shown(text, full | {"b": " ", "c": ""}) == ["~Add", *end]
    pattern = parse(text)
    assert pattern.fields == ("a", "b", "c") and pattern.optional == {"b", "c"}
    assert parse("{a} {b}[[ or {b}]] {mask}").optional == set()
    pieces = parse("{a} || [[{b}]]{mask}").render({"a": "x", "b": ""})
    assert [(p.kind, p.segment) for p in pieces] == [("field", 0), ("mask", 1)]


@pytest.mark.parametrize(
    ("name", "text", "result"),
    [
        ("strip_end", "He ran?! ", "He ran"),
        ("strip_end", "好。", "好"),
        ("strip_end", "...", ""),
        ("lower_first", "The man", "the man"),
        ("lower_first", "", ""),
        ("capital", "the Man", "The Man"),
        ("clause", "because", " because"),
        ("clause", "so", ", so"),
    ],
)
def test_filters(name, text, result):
    assert FILTERS[name](text) == result


def test_filters_apply_in_order_and_to_every_item():
    fields = {"options": ["The dog ran.", "He sat!"]}
    written = shown("{options|strip_end|lower_first|or}?", fields)
    assert written == ["the dog ran", "_or", "_he sat", "?"]


def test_options_are_written_in_quotation_marks():
    fields = {"options": ["The dog ran.", "He sat!"]}
    written = shown('"{options|strip_end|lower_first|or_quoted}"? So', fields)
    assert written == ['"', "the dog ran", '" or "', "he sat", '"? So']


def test_a_space_that_a_filter_writes_counts_and_one_of_the_data_does_not():
    assert shown("{a}{b|clause} {c}", {"a": "It is", "b": "so", "c": "x"})[1] == ", so"
    assert shown("{a}{b|clause} {c}", {"a": "It is", "b": "because", "c": "x"})[1] == "_because"
    assert shown("{a}{b|capital}", {"a": "x", "b": " y"}) == ["x", "y"]


def test_options_are_written_with_letters():
    fields = {"q": "why", "options": ["dogs", "cats"]}
    assert shown("{q}?{options|letters}", fields) == [
        *["why", "?", "A", ".", "_dogs", ".", "B", ".", "_cats", "."]
    ]
    assert shown("{q}? {~options|letters} So", fields) == [
        *["why", "?", "_A", ".", "_~dogs", ".", "_B", ".", "_~cats", ".", "_So"]
    ]


def test_an_empty_option_keeps_its_letter():
    assert shown("{options|letters}", {"options": ["", "x"]})[:4] == ["A", ".", ".", "B"]


def test_options_are_written_with_numerals():
    pieces = shown("{q}{options|numerals}答案", {"q": "问", "options": ["狗"] * 11})
    assert pieces[:5] == ["问", "一", "、", "狗", "；"]
    assert pieces[-5:] == ["十一", "、", "狗", "；", "答案"]


def test_label_words_are_numbered_where_they_stand():
    pieces = parse("{a} Class: {words|commas}.").render({"a": "x"}, ["bad", "very good"])
    numbered = [(p.text, p.item) for p in pieces][2:]
    assert numbered == [("bad", 0), (",", None), ("very good", 1), (".", None)]
    assert pieces[2].kind == "literal", "label words are never shortened"


def test_a_gap_in_a_query_is_where_the_answer_goes():
    fields = {"q": "Then @placeholder, at last, fell."}
    assert shown("{q|gap}", fields) == ["Then", "_<masks>", ", at last, fell."]
    with pytest.raises(UserError, match="field 'q' is 'no gap'; gap needs @placeholder"):
        shown("{q|gap}", {"q": "no gap"})


def test_a_relations_template_is_filled_or_cut_before_its_object():
    fields = {"template": "[X] is in [Y] .", "sub_label": "Oslo"}
    assert shown("{template|fact}", fields) == ["Oslo", "_is in", "_<mask>", "_."]
    assert shown("{template|fact_start}", fields) == ["Oslo", "_is in", "_<mask>"]
    fields["template"] = "[Y] is home to [X]"
    assert shown("{template|fact}", fields) == ["<mask>", "_is home to", "_Oslo"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "pattern '' has no text"),
        ("  ", "has no text"),
        (True, "pattern True has no text"),
        ("It was {mask}.", "has no field; write a slot such as {~sentence}"),
        ("{a} {mask", r"character 5: { has no partner"),
        ("{a} mask}", r"character 9: } has no partner"),
        ("{a} {}", r"character 5: {} is no slot; write {field}"),
        ("{a} {two words}", r"{two words} is no slot"),
        ("{a} {~mask}", r"{~mask} is no slot"),
        ("{a} {mask|capital}", "is no slot"),
        ("{a} {soft:0}", r"{soft:0} has no vector; write {soft} or {soft:3}"),
        ("{a} {soft:x}", "is no slot"),
        ("{a|upper}", "character 1: no filter 'upper'; there are strip_end, lower_first"),
        ("{a||capital}", "no filter ''"),
        ("{options|letters|capital}", "filter 'letters' must be the last"),
        ("{a} {words}", r"write label words as {words\|letters} or {words\|numerals}"),
        ("{a} {~words|letters}", "write label words as"),
        ("{a} {words|gap}", "write label words as"),
        ("{a} || {b} || {c}", r"has 2 borders \|\|; one or none"),
        (
            "{a} [[ {b} {mask}",
            r"5: \[\[ has no partner; write {field} or \[\[ {field}\]\]",
        ),
        ("{a} {b}]] {mask}", r"character 8: \]\] has no partner"),
        ("{a} [[ [[ {b}]] {mask}]]", r"character 2: \[\[ has no partner"),
        ("{a} [[ none]] {mask}", "pattern ' none' has no field"),
        (
            "{a} [[{b} {mask}]]",
            r"5: a group holds text and fields, as \[\[ Hint: {hint}\]\]",
        ),
        ("{a} [[{b} {soft}]]", "a group holds text and fields"),
        ("{a} [[{options|letters} {b}]]", "a group holds text and fields"),
        ("{a} [[{b} || {c}]]", "a group holds text and fields"),
        ("{a} || ", r"one side of \|\| is empty"),
    ],
)
def test_what_cannot_be_meant_is_refused(text, message):
    with pytest.raises(UserError, match=message.replace("{", r"\{").replace("}", r"\}")):
        parse(text)


@pytest.mark.parametrize(
    ("text", "fields", "message"),
    [
        ("{b} {mask}", {"a": "x"}, "no field 'b'; the example has a"),
        ("{a} {mask}", {"a": ["x", "y"]}, r"field 'a' is list, not one text; .* {a\|letters}"),
        ("{a|letters}", {"a": "x"}, "field 'a' is 'x', not a list of texts"),
        ("{a|letters}", {"a": []}, r"field 'a' is \[\], not a list of texts"),
        ("{a|letters}", {"a": ["x"] * 17}, "17 items; letters writes at most 16"),
        ("{a} {words|letters}", {"a": "x"}, "no label words; letters writes a list out"),
        ("{a|fact}", {"a": "[X] [Y]"}, "no field 'sub_label'"),
    ],
)
def test_examples_that_do_not_fit_are_refused(text, fields, message):
    with pytest.raises(UserError, match=message.replace("{", r"\{").replace("}", r"\}")):
        parse(text).render(fields)
