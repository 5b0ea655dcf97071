"""All tasks are written in words that the shipped backbones know; the corpus stays as it was."""

import hashlib
import json
from itertools import islice

import pytest

from ptrun.pocket import corpus as shipped
from workshop.pocket.corpus import documents

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
