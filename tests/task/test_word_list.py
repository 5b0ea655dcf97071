"""Lists of allowed words: one per line, or P-tuning's JSON with a list for each model."""

import json

import pytest

from ptrun.errors import UserError
from ptrun.task.facts import word_list
from tests.facts import facts
from tests.readout.reading import task
from tests.readout.test_facts import reader as reads_of

WORDS = ["Oslo", "film", "met", "saw"]


@pytest.fixture
def lists(tmp_path):
    """Write lists as `json.dump` does, with GPT-2's mark of a word's start for GPT-2."""
    file = tmp_path / "29k-vocab.json"
    marked = [f"Ġ{word}" for word in WORDS]
    content = {"bert-base-cased": WORDS, "gpt2-xl": [*marked, "osl"], "none": []}
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


@pytest.mark.parametrize("model", ["bert-base-cased", "gpt2-xl"])
def test_each_models_words_are_the_same_without_its_mark(lists, model):
    assert word_list(lists, model) == WORDS


def test_allowed_tokens_are_those_of_the_released_code(tiny, lists):
    """There the ids are `vocabulary[token]` of each token in the model's list."""
    backbone, data = tiny(), task("lama", "none")
    data.vocabulary = word_list(lists, "bert-base-cased")
    vocabulary = backbone.tokenizer().get_vocab()
    released = {vocabulary[token] for token in json.loads(lists.read_text())["bert-base-cased"]}
    assert set(reads_of(backbone, data).allowed.tolist()) == released


def test_the_task_reads_the_list_of_one_model(lists, tmp_path):
    chosen = facts(tmp_path, f"task.vocabulary={lists}", "task.vocabulary_of=gpt2-xl")
    assert chosen.vocabulary == WORDS and chosen.digest() != facts(tmp_path).digest()


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["task.vocabulary={}"], "no model is named; task.vocabulary_of is one of bert-b"),
        (["task.vocabulary={}", "task.vocabulary_of=gpt2"], "it has no list of gpt2; .* gpt2-xl"),
        (["task.vocabulary={}", "task.vocabulary_of=none"], "none has no list of tokens"),
        (["task.vocabulary_of=gpt2-xl"], "task.vocabulary_of=gpt2-xl needs task.vocabulary"),
        (["task.vocabulary={}.txt", "task.vocabulary_of=gpt2-xl"], "is one list of words; leave"),
    ],
)
def test_a_list_that_cannot_be_chosen_is_named(lists, tmp_path, overrides, words):
    lists.with_name(f"{lists.name}.txt").write_text("Oslo\n")
    with pytest.raises(UserError, match=words):
        print(facts(tmp_path, *(o.format(lists) for o in overrides)).vocabulary)
