"""Which read-out answers a task, and what is refused by name before anything is loaded."""

from types import SimpleNamespace

import pytest
import torch

from ptrun.backbone.registry import family_of
from ptrun.config.components import TARGET
from ptrun.errors import UserError
from ptrun.readout.choose import READINGS, automatic, resolved
from ptrun.readout.patterns import choose
from tests.families import FAMILIES
from tests.readings import readout_for
from tests.readout.reading import OF, fresh, read, task

CHOSEN = {
    ("sst2", "head"): "LabelHead",
    ("glue_stsb", "head"): "NumberHead",
    ("race_middle", "head"): "ChoiceHead",
    ("record", "head"): "EntityHead",
    ("conll03", "head"): "TokenHead",
    ("squad", "head"): "SpanHead",
    ("quoref", "head"): "TagHead",
    ("sst2", "verbalizer"): "LabelWords",
    ("race_middle", "verbalizer"): "LabelWords",
    ("copa", "verbalizer"): "Candidates",
    ("record", "verbalizer"): "Candidates",
    ("wsc", "verbalizer"): "Fill",
    ("lama", "verbalizer"): "FactWords",
}


def checked(backbone, data, keys, soft=False, offered=tuple(READINGS)):
    """Resolve a read-out whose keys are typed."""
    typed = keys.keys() - {"readout"}
    option, keys = keys.get("readout", "head"), {key: keys[key] for key in typed}
    node = {TARGET: f"{(own := READINGS[option]).__module__}.{own.__qualname__}", **keys}
    return resolved(option, node, typed, backbone, data, offered=offered, soft=soft)


@pytest.mark.parametrize(("name", "readout"), CHOSEN)
def test_a_task_s_kind_and_pattern_choose(tiny, name, readout):
    reads = readout_for(tiny(), task(name, "none"), {"readout": readout}, soft=False)
    assert type(reads).__name__ == CHOSEN[name, readout]


def refused(backbone, data, soft=False, **keys):
    with pytest.raises(UserError) as told:
        checked(backbone, data, keys, soft=soft)
    assert len(str(told.value).splitlines()) <= 3
    return str(told.value)


def test_auto_is_the_first_that_reads_the_kind(tiny):
    every = tuple(READINGS)
    assert automatic(task("sst2", "none"), every).name == "head"
    assert automatic(task("sst2", "none"), every[::-1]).name == "class_words"
    assert automatic(task("lama", "none"), every).name == "verbalizer"
    with pytest.raises(UserError, match="type method=fine_tuning readout=verbalizer"):
        automatic(task("lama", "none"), ("head",))
    named = resolved("auto", {}, set(), tiny(), task("sst2", "none"), offered=every, soft=False)
    assert named == ("head", {TARGET: "ptrun.readout.heads.HeadReading"})


def test_a_key_without_effect_is_refused_if_typed_and_left_out_if_a_file_has_it(tiny):
    data, keys = task("conll03", "none"), {"pooler": "mean", "dropout": 0.2}
    own = {"offered": tuple(READINGS), "soft": False}
    assert resolved("auto", keys, set(), tiny(), data, **own)[1].keys() == {TARGET, "dropout"}
    with pytest.raises(UserError, match=r"readout\.pooler=mean changes nothing"):
        resolved("auto", keys, {"pooler"}, tiny(), data, **own)


def test_what_no_read_out_answers_is_said(tiny):
    told = refused(tiny(), task("quoref", "none"), readout="verbalizer")
    assert told == (
        "readout=verbalizer cannot answer task=quoref, which is multispan; type readout=head."
    )
    told = refused(tiny(), task("lama", "none"))
    assert told.endswith("which is facts; type readout=verbalizer.")


@pytest.mark.parametrize(("dropout", "kept"), [(None, 0.9), (0.5, 0.5), (0.0, 1.0)])
@torch.no_grad()
def test_a_head_has_the_configured_dropout(tiny, data_dir, dropout, kept):
    """By formula: the map of hidden states of which some are 0 and the rest are larger."""
    reading = {"dropout": dropout, "pooler": "none"}
    head = fresh(readout_for(tiny(), task("sst2", data_dir), reading, soft=False))
    batch, output = read(head, head.task.load("train"), torch.arange(6))
    head.linear.weight.data, head.linear.bias.data = torch.eye(32), torch.zeros(32)
    ratio = head.scores(output, batch) / output.hidden
    gone = ratio == 0
    torch.testing.assert_close(ratio[~gone], torch.full_like(ratio[~gone], 1 / kept))
    assert abs(float(gone.float().mean()) - (1 - kept)) < 0.12


def test_a_dropout_that_no_head_can_have_is_refused(tiny):
    data = task("sst2", "none")
    assert "readout.dropout is 1.0; use 0 or more, and" in refused(tiny(), data, dropout=1.0)
    told = refused(tiny(), data, dropout=0.1, readout="verbalizer")
    assert "readout=verbalizer has no such key; leave it out, or type readout=head." in told


def test_without_label_words_the_labels_are_the_words(tiny):
    bare = task("sst2", "none", pvps={"own": {"pattern": "{~sentence} {mask}"}})
    made = readout_for(tiny(), bare, {"readout": "verbalizer"}, soft=False)
    assert made.pvp.words == {"negative": ["negative"], "positive": ["positive"]}


def test_masks_are_filled_by_masked_backbones_alone(tiny):
    wsc = task("wsc", "none", pvps={"own": {"pattern": "{~marked} {masks}"}})
    told = refused(tiny("gpt2"), wsc, readout="verbalizer")
    assert "own needs its gap filled, which masked and infilling backbones alone do" in told
    told = refused(tiny("t5"), wsc, readout="verbalizer", pattern="own")
    assert "readout.pattern=own needs its gap filled" in told


def test_a_pattern_without_a_mask_is_named_and_read_by_a_decoder(tiny):
    words = {"negative": ["bad"], "positive": ["good"]}
    pvps = {"ppt_lm": {"pattern": "{~sentence}", "words": words}}
    data, reading = task("sst2", "none", pvps=pvps), {"readout": "verbalizer"}
    for family in ("bert", "gpt2"):
        told = refused(tiny(family), data, **reading, pattern="ppt_lm")
        assert "ppt_lm has no {mask}, which an encoder-decoder alone can do without" in told
    assert "so readout.pattern must name it" in refused(tiny("t5"), data, **reading)
    told = refused(tiny("t5"), data, **reading, pattern="nope")
    assert "readout.pattern=nope is no pattern; of task=sst2 these suit: ppt_lm." in told
    named = readout_for(tiny("t5"), data, reading | {"pattern": "ppt_lm"}, soft=False)
    assert named.pvp.name == "ppt_lm" and not named.marked


def test_texts_of_several_tokens_need_masks(tiny):
    one = {"own": {"pattern": "{~asked} {mask}"}}
    for name in ("copa", "wsc"):
        told = refused(tiny(), task(name, "none", pvps=one), readout="verbalizer")
        assert "own has one {mask}, but its answers are texts of several tokens" in told
    both = {**one, "more": {"pattern": "{~asked} {masks}"}}
    data = task("copa", "none", pvps=both)
    reads = readout_for(tiny(), data, {"readout": "verbalizer"}, soft=False)
    assert reads.pvp.name == "more"


def test_one_word_of_the_vocabulary_is_read_at_one_mask(tiny):
    words = {"negative": ["bad"], "positive": ["good"]}
    long = {"own": {"pattern": "{~sentence} {masks}", "words": words, "rule": "mean"}}
    data = task("sst2", "none", pvps=long)
    told = refused(tiny(), data, readout="verbalizer", among="vocabulary")
    assert "readout.among=vocabulary reads one token, but pattern own reads several" in told
    checked(tiny(), data, {"readout": "verbalizer", "among": "labels"})


# Which pattern is taken where none is named.


TASKS = ["boolq", "cb", "rte", "copa", "multirc", "wic", "wsc", "record"]


def taken(own, family, *, soft):
    try:
        kind = family_of("", {"model_type": OF[family]}, FAMILIES)
        backbone = SimpleNamespace(family=family, architecture=kind)
        return choose(own, backbone, soft=soft).name
    except UserError:
        return None


@pytest.mark.parametrize("name", TASKS)
def test_a_blank_infiller_takes_its_own_pattern(name):
    assert taken(task(name), "infilling", soft=False) == "glm"


def test_without_one_of_its_own_it_takes_the_first_that_suits():
    assert taken(task("sst2"), "infilling", soft=False) == taken(
        task("sst2"), "seq2seq", soft=False
    )
