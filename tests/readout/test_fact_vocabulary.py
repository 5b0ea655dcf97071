"""Facts: which words may be answered, which facts count, and where each family is read."""

import pytest
import torch

from ptrun.backbone.base import BackboneOutput
from ptrun.errors import UserError
from ptrun.method.manual_prompt import ManualPrompt
from ptrun.method.ptuning import PTuning
from ptrun.runs.parts import divide
from ptrun.types import Split
from tests.facts import ROWS, facts
from tests.small_runs import engine


def ranked(method, *words):
    """Return logits that rank these words first, in order."""
    logits = torch.zeros(method.backbone.config["vocab_size"])
    for place, word in enumerate(words):
        logits[method.backbone.tokenizer().convert_tokens_to_ids(word)] = 9.0 - place
    return logits


def answer(method, logits):
    features = method.encode(method.task.load("test")[:1])
    batch = engine(method.backbone)._collate(features)
    return method.decode(BackboneOutput(logits=logits[None]), batch)[0].value


@pytest.mark.slow
def test_a_word_outside_the_list_does_not_count_even_where_it_ranks_first(tiny, tmp_path):
    words = tmp_path / "words.txt"
    words.write_text("Oslo\nRome\n\ngood\nnot one token\n")
    free = ManualPrompt(tiny(), facts(tmp_path))
    listed = ManualPrompt(tiny(), facts(tmp_path, f"task.vocabulary={words}"))
    closed = ManualPrompt(tiny(), facts(tmp_path, "task.vocabulary=objects"))
    logits = ranked(free, "the", "dull", "Rome", "Oslo")
    assert [answer(m, logits) for m in (free, listed, closed)] == ["the", "Rome", "dull"]
    assert listed.task.vocabulary == ["Oslo", "Rome", "good", "not one token"]
    assert closed.task.vocabulary == ["Oslo", "Rome", "bad", "dull", "good"]


def test_facts_whose_object_is_no_allowed_token_are_not_counted(tiny, tmp_path):
    rows = [*ROWS, ("P1", "film", "unlisted"), ("P1", "plot", "☃"), ("P1", "Ann", "saw")]
    words = tmp_path / "words.txt"
    words.write_text("\n".join(["Oslo", "Rome", "good", "dull", "bad", "unlisted", "☃"]))
    data = facts(tmp_path, f"task.vocabulary={words}", rows=rows)
    method = ManualPrompt(tiny(), data)
    test = data.load("test")
    assert [bool(method.readout.answerable([e])) for e in test] == [True] * 6 + [False] * 3
    (part,) = divide(method, Split([], [], test, {}))
    assert len(part.split.test) == 6 and part.left_out == 3


def test_each_relation_is_a_part_of_its_own_where_prompts_are_learned(tiny, tmp_path):
    unknown = ("P1", "film", "a bright plot")
    data = facts(tmp_path, rows=[*ROWS, unknown, *ROWS, unknown])
    split = Split(data.load("train"), data.load("dev"), data.load("test"), {})
    parts = divide(PTuning(tiny(), data), split)
    assert [(p.name, len(p.split.train), len(p.split.test), p.left_out) for p in parts] == [
        ("P1", 6, 6, 2),
        ("P2", 6, 6, 0),
    ]
    (whole,) = divide(PTuning(tiny(), data, tune_backbone=True), split)
    assert len(whole.split.train) == 12


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("task.vocabulary=nowhere.txt", "task.vocabulary=nowhere.txt: no such file"),
        ("task.vocabulary={empty}", "the file has no word"),
    ],
)
def test_a_missing_or_empty_list_is_named(tmp_path, override, message):
    empty = tmp_path / "empty.txt"
    empty.write_text("\n \n")
    with pytest.raises(UserError, match=message):
        data = facts(tmp_path, override.format(empty=empty))
        data.digest()
        print(data.vocabulary)


def test_a_list_without_a_word_of_the_backbone_is_refused(tiny, tmp_path):
    words = tmp_path / "words.txt"
    words.write_text("many tokens\n")
    with pytest.raises(UserError, match="none of its 1 words is one token of backbone=tiny_bert"):
        method = ManualPrompt(tiny(), facts(tmp_path, f"task.vocabulary={words}"))
        print(method.readout.allowed)
