"""All tasks are written in words that the shipped backbones know; the corpus stays as it was."""

import hashlib
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

import ptrun.pocket
from ptrun.pocket import corpus as shipped
from ptrun.pocket.tasks import TASKS, rows
from workshop.pocket.corpus import documents
from workshop.pocket.world import world

MODEL = Path(ptrun.pocket.__file__).parent / "models" / "pocket_bert"
SILENT = {"id", "label", "answer", "srl_tags", "ner_tags", "predicate", "predicate_id", "template"}
# Of the first 500 documents; the shipped backbones are trained on them.
CORPUS = {
    "train": "d48d4dd443403c0e9a148034126c9d0814bdcf1e66fed9e9ef3ad34c2ee46e5e",
    "validation": "7f942d7506c1f973e85bb17a910a4203fa88af7a5103b89c58b975f773918df1",
}


@pytest.fixture(scope="module")
def tokenizer():
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(MODEL)


def texts(value) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from () if key in SILENT else texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner)


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_almost_every_word_is_one_token(task, tokenizer):
    tokens = words = 0
    for text in texts(rows(task, "test")):
        encoded = tokenizer(text, add_special_tokens=False)
        assert tokenizer.unk_token_id not in encoded["input_ids"]
        tokens += len(encoded["input_ids"])
        words += len(set(encoded.word_ids()))
    assert tokens <= 1.25 * words


@pytest.mark.parametrize("split", CORPUS)
def test_the_corpus_is_the_one_the_backbones_were_trained_on(split):
    first = list(islice(documents(split), 500))
    assert hashlib.sha256(json.dumps(first).encode()).hexdigest() == CORPUS[split]
    assert split != "train" or first == list(islice(shipped.documents(), 500))


@pytest.mark.slow
@pytest.mark.parametrize("task", [name for name in TASKS if name != "pocket_facts"])
def test_reserved_people_are_in_test_rows_only(task):
    reserved = {person.name for person in world().by_kind["person"] if person.reserved}
    train = "\n".join(texts(rows(task, "train")))
    assert not any(name in train for name in reserved)
    test = "\n".join(texts(rows(task, "test")))
    token_rows = ("pocket_ner", "pocket_srl", "pocket_sentiment")  # no full names there
    assert task in token_rows or sum(name in test for name in reserved) >= 30
