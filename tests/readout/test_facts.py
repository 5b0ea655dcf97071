"""The released code's query on facts: what the tokenizer makes of a cut template, to its end."""

import gzip
import json
import re

import pytest
import torch
from tokenizers import AddedToken
from torch.nn import functional

from ptrun.backbone.base import BackboneOutput
from ptrun.errors import UserError
from ptrun.method.base import check_pair
from ptrun.method.manual_prompt import ManualPrompt
from ptrun.method.ptuning import PTuning
from ptrun.pattern.pattern import read_pvp
from ptrun.readout.label_words import FactWords
from ptrun.readout.verbalizer import VerbalizerReading
from ptrun.runs.examples import divide
from ptrun.types import Example, Split
from tests.facts import ROWS, backbone, facts
from tests.pattern import tokenizers
from tests.readout.reading import pocket, read, task, words_only
from tests.small_runs import engine

WRITTEN = "{template|fact_start}"
TEMPLATE = "[X] was in [Y] ."


def queried(tokenizer, pattern=WRITTEN, **options):
    data = task("lama", "none")
    pvp, keys = read_pvp("own", {"pattern": pattern}), VerbalizerReading(**options)
    return FactWords(words_only(tokenizer, "causal"), data, pvp, keys)


def fact(subject="Ann", template=TEMPLATE, word="A"):
    return Example("1", {"sub_label": subject, "template": template}, word, "P1")


def row_of(reads, example):
    return reads.encode([example], 128)[0].rows[0]


def whole(template, subject):
    """Return the text that the released code gives the tokenizer."""
    return " " + re.sub(r"\[Y\].*", "", template.replace("[X]", subject))


def megatron():
    """Return RoBERTa's tokenizer as Megatron-11B has it here: it sets nothing around a text."""
    made = tokenizers.roberta()
    made.backend_tokenizer.post_processor = None
    return made


def rows_of(shared, name):
    file = shared / "data" / "lama_trex" / f"{name}.jsonl.gz"
    if not file.is_file():
        pytest.skip(f"shared data: no {file.name} of lama_trex")
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@pytest.mark.shared
def test_gpt2_reads_what_its_tokenizer_makes_of_real_facts(shared):
    tokenizer, found = tokenizers.real(shared, "gpt2"), rows_of(shared, "validation")[::17]
    reads = queried(tokenizer, released_query=True)
    assert len({row["template"] for row in found}) > 30
    for row in found:
        made = row_of(reads, fact(row["sub_label"], row["template"]))
        assert made.ids == tokenizer(whole(row["template"], row["sub_label"]))["input_ids"]
        assert made.reads == [len(made.ids) - 1] and made.ids[-1] == 220


def test_megatron_answers_after_the_end_of_the_text():
    wanted, tokenizer = tokenizers.roberta(), megatron()
    assert wanted("A")["input_ids"][0] == 0 and len(tokenizer("A")["input_ids"]) == 1
    made = row_of(queried(tokenizer, released_query=True), fact("a film"))
    assert made.ids == wanted(whole(TEMPLATE, "a film"))["input_ids"]
    assert made.reads == [len(made.ids) - 1]
    assert tokenizer.convert_ids_to_tokens(made.ids[-2:]) == ["Ġ", "</s>"]
    assert row_of(queried(wanted, released_query=True), fact("a film")) == made, "framed by itself"
    sound = row_of(queried(tokenizer), fact("a film"))
    assert tokenizer.decode(sound.ids) == "a film was in"


@pytest.mark.parametrize("template", [TEMPLATE, "[Y] is the home of [X]", "in [X] and [Y] it was"])
@pytest.mark.parametrize("kind", ["roberta", "bert"])
def test_a_masked_backbone_reads_the_filled_template_after_a_space(kind, template):
    """`tokenizer(' ' + query)` with the mask in the place of the object."""
    tokenizer = getattr(tokenizers, kind)()
    if kind == "roberta":  # the library's takes the space before a mask into it
        mask = AddedToken("<mask>", lstrip=True, special=True)
        tokenizer.backend_tokenizer.add_special_tokens([mask])
    pvp = read_pvp("own", {"pattern": "{template|fact}"})
    data = task("lama", "none")
    reader, one = words_only(tokenizer), fact("a film", template)
    ours, plain = (
        row_of(FactWords(reader, data, pvp, VerbalizerReading(released_query=own)), one)
        for own in (True, False)
    )
    query = template.replace("[X]", "a film").replace("[Y]", tokenizer.mask_token)
    assert ours.ids == tokenizer(" " + query)["input_ids"]
    assert [ours.ids[at] for at in ours.reads] == [tokenizer.mask_token_id]
    assert (ours == plain) is (kind == "bert" or template.startswith("[Y]"))


@pytest.mark.parametrize(
    ("method", "name", "data"),
    [
        (ManualPrompt, "bert_base_cased", "rte"),
        (ManualPrompt, "gpt2", "rte"),
        (PTuning, "gpt2", "lama"),
        (ManualPrompt, "t5_v1_1_base", "lama"),
    ],
)
def test_where_the_released_code_has_no_such_query_it_is_refused(method, name, data):
    node, typed = {"released_query": True}, {"released_query"}
    with pytest.raises(UserError, match="released_query=true changes nothing"):
        check_pair(method, "auto", node, backbone(name), task(data, "none"), typed)


# Full-vocabulary loss at the mask, and a label that is shifted.


PATTERN = "{template|fact}"


def reader(backbone, data, pattern=PATTERN, **options):
    pvp = read_pvp("own", {"pattern": pattern})
    return FactWords(backbone, data, pvp, VerbalizerReading(**options))


def known(answer, subject="Ann", relation="P1"):
    fields = {"sub_label": subject, "template": "[X] was in [Y] ."}
    return Example(answer, fields, answer, relation)


@pytest.mark.parametrize("shifted", [False, True])
def test_a_shifted_label_learns_one_position_before_the_answer(shifted):
    backbone, data = pocket("pocket_gpt2"), task("pocket_facts")
    reads = reader(backbone, data, "{template|fact_start}", shifted_label=shifted)
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
    reads = reader(tiny(), task("lama", "none"), shifted_label=True)
    made = reads.encode([known("Oslo")], 64)[0]
    mask = reads.backbone.tokenizer().mask_token_id
    assert [made.rows[0].ids[at] for at in made.rows[0].reads] == [mask]


# Which words may be answered, which facts count, and where each family is read.


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
