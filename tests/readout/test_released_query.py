"""The released code's query on facts: what the tokenizer makes of a cut template, to its end."""

import gzip
import json
import re

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from torch.nn import functional
from transformers import PreTrainedTokenizerFast

from ptrun.backbone.base import BackboneOutput
from ptrun.errors import UserError
from ptrun.method.base import check_pair
from ptrun.method.manual_prompt import ManualPrompt
from ptrun.method.ptuning import PTuning
from ptrun.pattern.pattern import read_pvp
from ptrun.readout.base import collate
from ptrun.readout.label_words import FactWords
from ptrun.types import Example
from tests.facts import backbone
from tests.pattern import tokenizers
from tests.readout.reading import CPU, task, words_only

WRITTEN = "{template|fact_start}"
LEARNED = "{soft:3} {sub_label} {soft:3} {mask}"
TEMPLATE = "[X] was in [Y] ."


def facts(tokenizer, pattern=WRITTEN, **options):
    data = task("lama", "none")
    return FactWords(
        words_only(tokenizer, "causal"), data, read_pvp("own", {"pattern": pattern}), **options
    )


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
    reads = facts(tokenizer, released_query=True)
    assert len({row["template"] for row in found}) > 30
    for row in found:
        made = row_of(reads, fact(row["sub_label"], row["template"]))
        assert made.ids == tokenizer(whole(row["template"], row["sub_label"]))["input_ids"]
        assert made.reads == [len(made.ids) - 1] and made.ids[-1] == 220


@pytest.mark.shared
def test_gpt2_reads_the_last_word_by_default(shared):
    tokenizer = tokenizers.real(shared, "gpt2")
    sound, released = (
        row_of(facts(tokenizer, released_query=own), fact("Ann Lee", "[X] was born in [Y] ."))
        for own in (False, True)
    )
    assert tokenizer.decode(sound.ids) == "Ann Lee was born in"
    assert tokenizer.decode(released.ids) == " Ann Lee was born in "
    assert sound.reads == [len(sound.ids) - 1] and released.ids[-2:] == [287, 220]
    glued = row_of(facts(tokenizer, released_query=True), fact("Ann", "[X] plays:[Y]"))
    assert tokenizer.decode(glued.ids) == " Ann plays:", "no space is made up"


def test_megatron_answers_after_the_end_of_the_text():
    wanted, tokenizer = tokenizers.roberta(), megatron()
    assert wanted("A")["input_ids"][0] == 0 and len(tokenizer("A")["input_ids"]) == 1
    made = row_of(facts(tokenizer, released_query=True), fact("a film"))
    assert made.ids == wanted(whole(TEMPLATE, "a film"))["input_ids"]
    assert made.reads == [len(made.ids) - 1]
    assert tokenizer.convert_ids_to_tokens(made.ids[-2:]) == ["Ġ", "</s>"]
    assert row_of(facts(wanted, released_query=True), fact("a film")) == made, "framed by itself"
    sound = row_of(facts(tokenizer), fact("a film"))
    assert tokenizer.decode(sound.ids) == "a film was in"


def test_its_mask_token_is_no_place_to_read():
    """RoBERTa's vocabulary has one, which a left-to-right backbone never saw."""
    tokenizer = megatron()
    assert tokenizer.mask_token_id is not None
    for released in (False, True):
        made = row_of(facts(tokenizer, released_query=released), fact())
        assert tokenizer.mask_token_id not in made.ids and made.reads == [len(made.ids) - 1]


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
        row_of(FactWords(reader, data, pvp, released_query=own), one) for own in (True, False)
    )
    query = template.replace("[X]", "a film").replace("[Y]", tokenizer.mask_token)
    assert ours.ids == tokenizer(" " + query)["input_ids"]
    assert [ours.ids[at] for at in ours.reads] == [tokenizer.mask_token_id]
    assert (ours == plain) is (kind == "bert" or template.startswith("[Y]"))


@pytest.mark.parametrize("shifted", [False, True])
def test_learned_vectors_stand_around_the_subject_alone(shifted):
    """P P P sub P P P: a space before the subject, no `<s>`, no `</s>`, padding on the right."""
    tokenizer = megatron()
    reads = facts(tokenizer, LEARNED, shifted_label=shifted)
    batch = collate(reads.encode([fact("a film"), fact("film")], 64), None, CPU)
    subject = tokenizer(" a film")["input_ids"]
    row, last = batch.rows[0], len(subject) + 5
    assert row.ids == [tokenizer.unk_token_id] * 3 + subject + [tokenizer.unk_token_id] * 3
    assert row.softs == [0, 1, 2, last - 2, last - 1, last]
    assert row.reads == ([last - 1, last] if shifted else [last])
    assert batch.mask.sum(dim=1).tolist() == [last + 1, last - 1] and not batch.mask[1, -2:].any()


def test_a_shifted_label_of_the_released_query_learns_before_its_space():
    made = row_of(facts(megatron(), released_query=True, shifted_label=True), fact())
    assert made.reads == [len(made.ids) - 2, len(made.ids) - 1]


def test_every_row_of_the_output_competes_in_the_loss_and_listed_words_in_the_answer():
    """Megatron-11B has 51,200 rows; objects are tokens that begin with a space."""
    reads = facts(merging("A", "B"))
    reads.task.vocabulary = ["A", "B", "C"]
    glued, spaced = reads.backbone.tokenizer().convert_tokens_to_ids(["A", "ĠA"])
    assert [bool(reads.answerable([fact(word=word)])) for word in "ABC"] == [True, True, False]
    assert spaced in reads.allowed and len(reads.allowed) == 2
    batch = collate(reads.encode([fact(word="A")], 64), None, CPU)
    assert batch.targets.tolist() == [spaced]
    logits = torch.zeros(1, 51_200)
    logits[0, -1], logits[0, glued], logits[0, spaced] = 9.0, 3.0, 1.0
    output = BackboneOutput(logits=logits)
    assert reads.decode(output, batch)[0].value == "A"
    wanted = functional.cross_entropy(logits, batch.targets, reduction="sum")
    assert float(reads.loss(output, batch)) == float(wanted) > 8


def merging(*words):
    """Return a tokenizer in whose vocabulary these letters have a space before them, too."""
    vocabulary = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *(f"Ġ{word}" for word in words)]
    ids = {token: index for index, token in enumerate(vocabulary)}
    made = Tokenizer(models.BPE(ids, [("Ġ", word) for word in words]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return PreTrainedTokenizerFast(tokenizer_object=made)


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
