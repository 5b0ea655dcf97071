"""YAML of somebody else is plain data of a bounded size."""

import importlib.util

import pytest
import yaml
from omegaconf import OmegaConf

from ptrun.config import plain_yaml
from ptrun.config.paths import conf_dir
from ptrun.config.plain_yaml import dump, load_plain
from tests.folder.test_request import BOMB


def test_plain_data_are_read_as_pyyaml_reads_them():
    text = "a: {x: 1, y: [2, null]}\n? 1\n: 2\n"
    assert load_plain(text) == yaml.safe_load(text)
    assert load_plain("") is None and load_plain("- 1\n- x: 'é'") == [1, {"x": "é"}]


HARM = ["!!python/object/apply:os.mkdir [owned]", "a: !!set {b}", "!!binary aGk=: 1", "a: !own b"]


@pytest.mark.parametrize("text", [*HARM, BOMB, "a: &a [*a]", "a: &a {b: 1}\nc: {<<: *a}"])
def test_tags_and_aliases_are_refused_before_they_are_built(text):
    with pytest.raises(ValueError, match=r"line \d+ has a tag \(!\) or an alias"):
        load_plain(text)


@pytest.mark.parametrize("text", ["a: 1\na: 2", "{x: {1: a, 1: b}}"])
def test_a_repeated_key_is_told_with_its_line(text):
    with pytest.raises(yaml.YAMLError, match=r"the key [a1] is repeated\s+in .* line \d"):
        load_plain(text)


@pytest.mark.parametrize("opened", ["[", "- ", "{a: ", "? "])
def test_deep_nesting_is_refused_and_ends_no_process(opened):
    with pytest.raises(ValueError, match="nested too deeply"):
        load_plain(opened * 200_000 + "a")


VALUES = ["1e5", "2e-5", "1_0E+5", "2.5e3", "2024-01-01", "yes", "1:30", ".5", "~", "0x1F"]
VALUES += ["é", "a b"]


def test_values_are_read_as_hydra_reads_them():
    text = "\n".join(f"k{i}: {value}" for i, value in enumerate(VALUES))
    assert load_plain(text) == OmegaConf.to_container(OmegaConf.create(text))
    for file in sorted((conf_dir() / "method").glob("*.yaml")):
        assert (plain_yaml.read(file) or {}) == OmegaConf.to_container(OmegaConf.load(file))


def test_what_is_written_is_read_again_with_its_types_and_order():
    content = {"b": VALUES, "a": {1: 1e-5, "1": None, "0.5": True}}
    content["c"] = ["x\ny ", "a" * 300 + " b"]
    assert load_plain(dump(content)) == content and [*load_plain(dump(content))] == [*"bac"]


def test_a_build_without_libyaml_reads_and_writes_the_same(monkeypatch):
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    monkeypatch.delattr(yaml, "CSafeDumper", raising=False)
    spec = importlib.util.spec_from_file_location("slow_yaml", plain_yaml.__file__)
    slow = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(slow)
    content = {"a": [*VALUES, 1e-5, None], "b": {1: "x"}}
    assert slow.load_plain(dump(content)) == content == load_plain(slow.dump(content))
    with pytest.raises(ValueError, match="nested too deeply"):
        slow.load_plain("[" * 2000)
