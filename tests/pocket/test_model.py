"""The shipped models load as they are, are small, and have learned what their figures say."""

import json
import string
from pathlib import Path

import pytest

import ptrun.pocket
from ptrun.config.build import build
from ptrun.config.compose import compose_run
from ptrun.pocket import tasks
from ptrun.pocket.tasks import VERSION

MODELS = Path(ptrun.pocket.__file__).parent / "models"
NAMES = ("pocket_bert", "pocket_electra", "pocket_gpt2", "pocket_t5", "pocket_glm")
FOLDER = MODELS / "pocket_bert"


@pytest.fixture(scope="module")
def tokenizer():
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(FOLDER)


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_is_small_and_belongs_to_this_world(name):
    folder = MODELS / name
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 3_000_000
    result = json.loads((folder / "result.json").read_text())
    assert result["world_version"] == VERSION
    assert 1_000_000 <= result["parameters"] <= 3_000_000


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_model_is_the_backbone_of_its_name(name):
    node = compose_run([f"backbone={name}"]).config["backbone"]
    backbone = build("backbone", node)
    backbone.load()
    assert backbone.name == name and backbone.has_head


def test_any_ascii_text_is_encoded_without_unknown_words(tokenizer):
    odd = string.printable + "x" * 300 + " http://example.org/a_b?c=1 McDonald's 12,000.5"
    assert tokenizer.unk_token_id not in tokenizer(odd)["input_ids"]


def test_case_is_kept_and_words_can_be_traced(tokenizer):
    row = tasks.rows("pocket_ner", "test")[0]
    encoded = tokenizer(row["tokens"], is_split_into_words=True)
    assert {w for w in encoded.word_ids() if w is not None} == set(range(len(row["tokens"])))
    assert tokenizer("Anna")["input_ids"] != tokenizer("anna")["input_ids"]
