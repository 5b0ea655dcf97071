"""YAML of somebody else is plain data of a bounded size."""

import pytest
import yaml

from ptrun.config.plain_yaml import call, load
from tests.folder.test_request import BOMB
from tests.fuzz.test_yaml import MERGES


def test_plain_data_aliases_and_merges_are_read_as_pyyaml_reads_them():
    text = "a: &a {x: 1, y: [2, null]}\nb: *a\nc: {<<: *a, y: 3}\n? 1\n: 2\n"
    assert load(text) == yaml.safe_load(text)
    assert load("") is None and load("- 1\n- x: 'é'") == [1, {"x": "é"}]


@pytest.mark.parametrize("text", [BOMB, MERGES, "a: &a [*a]", "a: &a {b: *a}"])
def test_bombs_are_refused_at_once(text):
    with pytest.raises(ValueError, match=r"more than 100,000 values; write it without aliases"):
        load(text)


def test_the_limit_counts_values_and_not_keys():
    assert len(load("\n".join(f"k{i}: 1" for i in range(2_000)))) == 2_000
    nested = "a: &a [" + "1, " * 999 + "1]\nb: [" + "*a, " * 97 + "*a]\n"
    assert sum(map(len, load(nested)["b"])) == 98_000
    with pytest.raises(ValueError, match="more than 100,000"):
        load(nested.replace("b: [", "b: [*a, "))


def test_tags_of_python_are_refused():
    with pytest.raises(yaml.YAMLError):
        load("!!python/object/apply:os.mkdir [owned]")


@pytest.mark.parametrize(
    "text", ["${oc.env:HOME}", "a ${ oc.${b}:HOME}", "${oc.decode:${c}}", "${x:\n}"]
)
def test_a_call_of_a_resolver_is_found_anywhere(text):
    for content in (text, [1, [text]], {"a": {"b": text}}, {text: 1}):
        assert call(content) == text


@pytest.mark.parametrize(
    "text", ["${backbone.lr.full}", "a: {b}", "$5: {x}", "cost ${price} today"]
)
def test_a_reference_to_another_key_calls_nothing(text):
    assert call({"a": [text, 1, None], "b": text}) is None
