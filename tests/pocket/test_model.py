"""The shipped models load as they are, are small, and have learned what their figures say."""

import hashlib
import json
import string
from itertools import islice
from pathlib import Path

import pytest

import ptrun.pocket
from ptrun.config.build import build
from ptrun.config.compose import compose_run
from ptrun.pocket import corpus as shipped
from ptrun.pocket import tasks
from ptrun.pocket.tasks import VERSION
from workshop.pocket.corpus import documents

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


# Of the first 500 documents; the shipped backbones are trained on them.
CORPUS = {
    "train": "d48d4dd443403c0e9a148034126c9d0814bdcf1e66fed9e9ef3ad34c2ee46e5e",
    "validation": "7f942d7506c1f973e85bb17a910a4203fa88af7a5103b89c58b975f773918df1",
}


@pytest.mark.parametrize("split", CORPUS)
def test_the_corpus_is_the_one_the_backbones_were_trained_on(split):
    first = list(islice(documents(split), 500))
    assert hashlib.sha256(json.dumps(first).encode()).hexdigest() == CORPUS[split]
    assert split != "train" or first == list(islice(shipped.documents(), 500))
