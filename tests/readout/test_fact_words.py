"""Facts: full-vocabulary loss at the mask, the likeliest allowed word, one-token objects."""

import pytest
import torch
from torch.nn import functional

from ptrun.backbone.base import BackboneOutput
from ptrun.pattern.pattern import read_pvp
from ptrun.readout.base import collate
from ptrun.readout.label_words import FactWords
from ptrun.types import Example
from tests.pattern import tokenizers
from tests.readout.reading import CPU, pocket, read, task, words_only

PATTERN = "{template|fact}"


def facts(backbone, data, pattern=PATTERN, **options):
    return FactWords(backbone, data, read_pvp("own", {"pattern": pattern}), **options)


def fact(answer, subject="Ann", relation="P1"):
    fields = {"sub_label": subject, "template": "[X] was in [Y] ."}
    return Example(answer, fields, answer, relation)


def test_the_loss_is_over_the_whole_vocabulary_and_the_answer_among_allowed_words(tiny):
    backbone, data = tiny(), task("lama", "none")
    data.vocabulary = ["Oslo", "Rome", "Oslofilm"]
    reads, examples = facts(backbone, data), [fact("Oslo"), fact("Rome", "Bob")]
    batch, output = read(reads, examples)
    tokens = backbone.tokenizer().convert_tokens_to_ids(["Oslo", "Rome"])
    assert batch.targets.tolist() == tokens and reads.allowed.tolist() == sorted(tokens)
    wanted = functional.cross_entropy(output.logits, batch.targets, reduction="sum")
    assert abs(float(reads.loss(output, batch)) - float(wanted)) < 1e-5
    best = output.logits[:, tokens].argmax(dim=1).tolist()
    answers = [p.value for p in reads.decode(output, batch)]
    assert answers == [["Oslo", "Rome"][i] for i in best]


def test_objects_of_several_or_unknown_tokens_cannot_be_answered(tiny):
    reads = facts(tiny(), task("lama", "none"))
    kept = [
        word for word in ("Oslo", "Oslofilm", "☃", "film") if bool(reads.answerable([fact(word)]))
    ]
    assert kept == ["Oslo", "film"]
    limited = facts(tiny(), task("lama", "none"))
    limited.task.vocabulary = ["film", "☃"]
    assert not bool(limited.answerable([fact("Oslo")])) and bool(limited.answerable([fact("film")]))
    assert len(limited.allowed) == 1


def test_another_token_of_the_same_letters_is_wrong(shared):
    """GPT-2 has `Paris` with and without its space: only the one after a space is the object."""
    tokenizer = tokenizers.real(shared, "gpt2")
    backbone = words_only(tokenizer, "causal")
    reads = facts(backbone, task("lama", "none"), "{template|fact_start}")
    glued, spaced = tokenizer.convert_tokens_to_ids(["Paris", "ĠParis"])
    batch = collate(reads.encode([fact("Paris")], 64), None, CPU)
    assert batch.targets.tolist() == [spaced]
    for token, right in ((glued, False), (spaced, True)):
        logits = torch.zeros(1, len(tokenizer))
        logits[0, token] = 1
        answer = reads.decode(BackboneOutput(logits=logits), batch)[0].value
        assert (answer == "Paris") is right


@pytest.mark.parametrize("shifted", [False, True])
def test_a_shifted_label_learns_one_position_before_the_answer(shifted):
    backbone, data = pocket("pocket_gpt2"), task("pocket_facts")
    reads = facts(backbone, data, "{template|fact_start}", shifted_label=shifted)
    examples = [e for e in data.load("train")[:9] if bool(reads.answerable([e]))]
    batch, output = read(reads, examples, room=128)
    ends = [len(row.ids) - 1 for row in batch.rows]
    count = 2 if shifted else 1
    assert [row.reads[-1] for row in batch.rows] == ends
    assert [row.reads[0] for row in batch.rows] == [end - count + 1 for end in ends]
    learned, answering = output.logits.view(len(batch), count, -1)[:, [0, -1]].unbind(1)
    wanted = functional.cross_entropy(learned, batch.targets, reduction="sum")
    assert abs(float(reads.loss(output, batch)) - float(wanted)) < 1e-4
    best = answering.argmax(dim=1).tolist()
    right = [
        p.value == e.target for p, e in zip(reads.decode(output, batch), examples, strict=True)
    ]
    assert right == [b == t for b, t in zip(best, batch.targets.tolist(), strict=True)]


def test_masked_backbones_do_not_shift(tiny):
    reads = facts(tiny(), task("lama", "none"), shifted_label=True)
    made = reads.encode([fact("Oslo")], 64)[0]
    mask = reads.backbone.tokenizer().mask_token_id
    assert [made.rows[0].ids[at] for at in made.rows[0].reads] == [mask]
