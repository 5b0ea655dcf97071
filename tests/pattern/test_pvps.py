"""Every PVP of every task reads, renders on a made-up example and fits its paper's vocabulary."""

import functools
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from ptrun.pattern.encoding import Encoder
from ptrun.pattern.pattern import read_pvps
from tests.pattern import tokenizers as make

ROOT = Path(__file__).parents[2]
FILES = [file for folder in ("conf/task",) for file in (ROOT / folder).glob("*.yaml")]
CHINESE = ("chnsenticorp", "amazon_zh", "tnews", "ccpm", "c3", "lcqmc", "cmnli", "ocnli")
TEXTS = ["sentence", "text", "premise", "hypothesis", "passage", "paragraph", "answer", "word"]
TEXTS += ["article", "question_title", "context", "translation", "sub_label", "marked", "facts"]
TEXTS += ["document", "meaning_representation", "dialogue", "quoted", "first", "second"]
TEXTS += ["sentence1", "sentence2", "span1_text", "span2_text"]
EXAMPLE = {
    **{name: "some words" for name in TEXTS},
    **{"question": "cause", "query": "Then @placeholder fell.", "options": ["One.", "Two.", "No."]},
    **{name: "[X] is in [Y] ." for name in ("template", "lpaqa", "autoprompt")},
}


def blocks():
    for file in sorted(FILES, key=lambda file: file.stem):
        node = OmegaConf.to_container(OmegaConf.load(file), resolve=False)
        if "pvps" in node:
            yield file.stem, read_pvps(node["pvps"])


BLOCKS = dict(blocks())
PVPS = [
    pytest.param(task, pvp, id=f"{task}-{name}")
    for task, pvps in BLOCKS.items()
    for name, pvp in pvps.items()
]


def backbone(task, name):
    """Return the vocabulary that a paper's words must be single tokens of."""
    if task in CHINESE or name.startswith("ppt_zh"):
        return "cpm2"
    if name.startswith("ppt_"):
        return "t5"
    if name.startswith("glm"):
        return "glm"
    if name.startswith("dpt_") or (name.startswith("pet_") and name[-1].isdigit()):
        return "bert_uncased"  # ELECTRA's vocabulary; ALBERT's is in lower case too
    return "gpt2" if name.endswith("_gpt") or name == "ptuning_v2" else "bert_cased"


@pytest.fixture(scope="module")
def encoder(shared):
    @functools.cache
    def load(name):
        folder = "gpt2" if name == "glm" else name
        if not (shared / "models" / "tokenizers" / folder).is_dir():
            pytest.skip(f"shared data: no vocabulary {folder}")
        tokenizer = make.real(shared, name)
        return tokenizer, Encoder(tokenizer)

    return load


@pytest.mark.parametrize(("task", "pvp"), PVPS)
def test_a_pvp_renders_and_writes_each_slot(task, pvp):
    pieces = pvp.render(EXAMPLE)
    kinds = [piece.kind for piece in pieces]
    assert kinds.count("mask") + kinds.count("masks") == pvp.pattern.masks
    assert sum(p.count for p in pieces if p.kind == "soft") == pvp.pattern.softs
    listed = pvp.pattern.listing("words")
    items = [piece.item for piece in pieces if piece.item is not None]
    assert items == (list(range(len(pvp.words))) if listed else [])
    answered = pvp.pattern.masks == 1
    reads_decoder = pvp.name == "ppt_lm" and task not in CHINESE
    reads_decoder |= pvp.name == "ppt_ft" and task in ("c3", "ccpm")
    assert answered or pvp.name.startswith("dpt_") or reads_decoder


@pytest.mark.shared
@pytest.mark.parametrize(("task", "pvp"), PVPS)
def test_a_pvp_fits_its_papers_vocabulary(encoder, task, pvp):
    name = backbone(task, pvp.name)
    verbalizer = pvp.verbalizer(options=3)
    if verbalizer is not None:
        bound = verbalizer.bind(encoder(name)[0])
        assert bound.masks == 1
    if pvp.name == "ptuning_v2":
        name = "bert_cased"  # RoBERTa has GPT-2's words and a mask besides
    tokenizer, made = encoder(name)
    count = 1 if name == "gpt2" else 2  # without a mask token an option is written out, not masked
    encoded = made.encode(pvp.render(EXAMPLE), 256, masks=count)
    assert encoded.cut == 0 and len(encoded.softs) == pvp.pattern.softs
    masks = {tokenizer.mask_token, "<extra_id_0>", "<s_0>"}
    for place in encoded.masks:
        assert name == "gpt2" or tokenizer.convert_ids_to_tokens(encoded.ids[place]) in masks
    if name == "gpt2":
        assert encoded.masks == [len(encoded.ids) - 1]
