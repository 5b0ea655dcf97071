"""What every import of shards refuses: it says why in a few lines, and leaves nothing behind."""

import argparse
import os
import pickle
import shutil
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from ptrun.papers.cpm2 import import_cpm2
from ptrun.papers.glm import import_glm
from ptrun.papers.megatron import import_megatron
from tests.papers import glm_shards, megatron_shards
from tests.papers.cpm2_shards import untied_t5, write_shards
from tests.papers.gpt2_files import write_gpt2
from tests.papers.refused import refused

T5, GLM, FAIRSEQ = untied_t5(), glm_shards.whole_state(), megatron_shards.whole_state()
Usage = namedtuple("Usage", "total used free")


class Format:
    """A kind of checkpoint: its import, and what writes it in `count` files.

    `words` are what messages call things: the names of `file0` and `file1`; what an empty folder is
    told (`absent`); `first`, a tensor by which the `kind` is known; `whole`, a tensor that is the
    same in all files, and `norm`, the name under which it is written; `split`, a matrix of which
    each file has a part, with its `shape`, and the one without six rows a file (`cut`).
    """

    def __init__(self, convert, write, files, *words):
        self.convert, self.write = convert, write
        self.words = dict(zip(NAMES, (*files, *words), strict=True))

    def file(self, folder, number):
        return next(folder.rglob(self.words["file1"].replace("1", str(number))))

    def options(self, gpt2):
        return {"tokenizer": gpt2} if self.convert is import_glm else {}


@dataclass(frozen=True)
class Harm:
    """What is wrong, and the words of the refusal, with those of the format in braces.

    `change` spoils the tensors of each file, or of file 1 `alone`; `extra` is saved beside them;
    `damage` is done to a file.
    """

    words: tuple[str, ...]
    change: Callable[..., Any] | None = None
    alone: bool = False
    count: int = 2
    extra: dict[str, Any] = field(default_factory=dict)
    damage: tuple[int, Callable[[Path], Any]] | None = None
    options: dict[str, Any] = field(default_factory=dict)


class Code:
    """To read its pickle makes a folder."""

    def __reduce__(self):
        return os.mkdir, ("harmed",)


def put(name, value):
    """Return a change of a tensor, named as in `Format.words` or by itself; None is a new one."""
    return lambda s, words: s.update({words.get(name, name): value(s.get(words.get(name, name)))})


def drop(name):
    return lambda s, words: s.pop(words.get(name, name))


def more(name):
    return put(name, lambda tensor: tensor + 1)


def cut(name, rows):
    return put(name, lambda tensor: tensor[:rows])


SHARDS = ("rank", "mp_rank_00_model_states.pt", "mp_rank_01_model_states.pt")
PARTS = ("part", "model-model_part-0.pt", "model-model_part-1.pt")
NAMES = ["word", "file0", "file1", "absent", "kind", "first", "whole", "norm"]
NAMES += ["split", "shape", "cut"]
FORMATS = {
    "cpm2": Format(
        *(import_cpm2, partial(write_shards, T5)),
        *(SHARDS, "latest_checkpointed_iteration.txt", "these are not CPM-2 shards"),
        "encoder.blocks.0.self_attn.self_attn.relative_attention_bias.weight",
        *("decoder.blocks.1.ff.layer_norm.weight", "decoder.block.1.layer.2.layer_norm.weight"),
        *("lm_head.weight", "[128, 64]", "[116, 64]"),
    ),
    "glm": Format(
        *(import_glm, partial(glm_shards.write_ranks, GLM)),
        *(SHARDS, "a snapshot of the hub with pytorch_model*.bin", "this is not a GLM checkpoint"),
        "transformer.block_position_embeddings.weight",
        *("transformer.layers.1.input_layernorm.weight", "transformer.h.1.ln_1.weight"),
        *("transformer.layers.0.attention.query_key_value.weight", "[384, 128]", "[372, 128]"),
    ),
    "megatron": Format(
        *(import_megatron, partial(megatron_shards.write_parts, FAIRSEQ)),
        *(PARTS, "expected a folder with dict.txt and fairseq's", "this is not fairseq's Megatron"),
        "decoder.embed_tokens.weight",
        *("decoder.layers.0.final_layer_norm.weight", "model.layers.0.final_layer_norm.weight"),
        *("decoder.layers.1.fc1.weight", "[192, 32]", "[180, 32]"),
    ),
}


def resave(file, args):
    """Save a part of fairseq's again, with other args."""
    part = torch.load(file, weights_only=False)
    merged = None if args is None else argparse.Namespace(**vars(part["args"]) | args)
    torch.save(part | {"args": merged}, file)


HARMS = {
    "no checkpoint": Harm(("{absent}", "{file0}"), count=0),
    "a missing file": Harm(("{file1}",), count=4, damage=(1, os.remove)),
    "a missing last file": Harm(("saved as 4",), count=4, damage=(3, os.remove)),
    "a norm that differs": Harm(("{whole}", "{word}s [1]"), more("whole"), alone=True),
    "a tensor that one lacks": Harm(("{split}", "{word}s 0 and 1"), drop("split"), alone=True),
    "rows that one lacks": Harm(("{split}", "{word} 1"), cut("split", -1), alone=True),
    "another dtype": Harm(("{split}", "float16"), put("split", torch.Tensor.half), alone=True),
    "a missing tensor": Harm(("1 missing", "{whole}"), drop("whole")),
    "an unknown tensor": Harm(("1 unknown", "pool"), put("pool", lambda _: torch.ones(3))),
    "another model": Harm(("{kind}", "{first}"), drop("first")),
    "few rows": Harm(("{split}", "{cut}", "{shape}"), cut("split", -6)),
    "a vector": Harm(("{split}", "{shape}"), put("split", torch.Tensor.flatten)),
    "integers": Harm(("{whole}", "int32"), put("whole", torch.Tensor.int)),
    "a value beyond fp16": Harm(
        ("{norm}", "--dtype bf16"), put("whole", lambda t: t * 1e6), options={"dtype": "fp16"}
    ),
    "code": Harm(("mkdir", "may run code", "torch.save"), extra={"criterion": Code()}),
    "code alone": Harm(("{file0}",), damage=(0, lambda f: f.write_bytes(pickle.dumps(Code())))),
    "a cut file": Harm(("{file0}",), damage=(0, lambda f: f.write_bytes(f.read_bytes()[:5000]))),
    "a pointer": Harm(("{file0}",), damage=(0, lambda f: f.write_text("version https://x.org\n"))),
    "a list": Harm(("{file0}", "no tensors under"), damage=(0, lambda f: torch.save([1], f))),
    "other keys": Harm(("{file0}",), damage=(0, lambda f: torch.save({"weights": {}}, f))),
}
PROMPT, OUTPUT = "encoder.prompt_embeds.weight", "decoder.output_projection.weight"
ALIAS, NORM, HEADS = "decoder.word_embeds.weight", "decoder.layer_norm", "decoder_attention_heads"
TABLE, WORDS = FORMATS["glm"].words["first"], "word_embeddings.weight"
GLM_BIAS, BIAS = "transformer.layers.1.attention.dense.bias", "decoder.layers.1.fc2.bias"
SETTINGS = [("decoder_normalize_before", False), ("decoder_learned_pos", True)]
SETTINGS += [("no_token_positional_embeddings", True), ("share_decoder_input_output_embed", False)]
SETTINGS += [("adaptive_input", True), ("adaptive_softmax_cutoff", "10000,20000")]
SETTINGS += [("character_embeddings", True), ("layernorm_embedding", True)]
SETTINGS += [("decoder_layerdrop", 0.2), ("activation_fn", "swish"), ("dropout", "often")]
SETTINGS += [("decoder_layers", 3), ("decoder_embed_dim", 64), ("decoder_ffn_embed_dim", 64)]
SETTINGS += [("decoder_attention_heads", heads) for heads in (5, 0, -2, "two", 2.0)]
CPM2 = {
    "a prompt that differs": Harm((PROMPT, "[1]"), put(PROMPT, lambda _: torch.rand(4, 64))),
    "an alias that differs": Harm((ALIAS, "rank 1"), more(ALIAS), alone=True),
    "ranks of two saves": Harm(
        ("iteration", "[100, 200]"),
        damage=(1, lambda f: torch.save(torch.load(f, weights_only=True) | {"iteration": 200}, f)),
    ),
    "a scale that it never had": Harm(
        *(("--unscale", "26240"), put("word_embeds.weight", lambda _: torch.ones(13120, 64))),
        options={"unscale": True},
    ),
}
ONE_GLM = {
    "a bias that differs": Harm((GLM_BIAS, "[1]"), more(GLM_BIAS), alone=True),
    "positions that differ": Harm((TABLE, "[1]"), more(TABLE), alone=True),
    "no words": Harm(("not a GLM checkpoint", WORDS), drop(WORDS)),
    "few positions": Harm((TABLE, "513 rows; expected 1025", "random values"), cut(TABLE, 513)),
    "an odd width": Harm(("100 columns", "64"), put(WORDS, lambda t: t[:, :100])),
    "many positions": Harm(
        ("2049 rows; expected 1025.",), put(TABLE, lambda _: torch.ones(2049, 128))
    ),
    "another vocabulary": Harm(("320 rows", "50304", "--tokenizer"), options={"tokenizer": None}),
    "too many words": Harm(("276 entries", "270 rows"), cut(WORDS, 135)),
    "other words": Harm(("is 266 of", "50256"), put(WORDS, lambda _: torch.ones(25152, 128))),
    "no tokenizer there": Harm(("vocab.json",), options={"tokenizer": Path("nowhere")}),
}
MEGATRON = {
    "a bias that differs": Harm((BIAS, "parts [1]"), more(BIAS), alone=True),
    "half a norm": Harm(
        ("1 missing", f"{NORM}.bias"), put(f"{NORM}.weight", lambda _: torch.ones(32))
    ),
    "untied words": Harm(
        (OUTPUT, "one tensor for both"), put(OUTPUT, lambda _: torch.ones(160, 32))
    ),
    "parts of two models": Harm(
        ("different args",), damage=(1, lambda f: resave(f, {"dropout": 0.5}))
    ),
    "no args": Harm(("argparse.Namespace",), damage=(0, lambda f: resave(f, None))),
    "heads that nobody knows": Harm((HEADS, "here: 32"), extra={HEADS: None}),
    **{
        f"{key}={value}": Harm((key, str(value)), count=1, extra={key: value})
        for key, value in SETTINGS
    },
}
ALONE = {"cpm2": CPM2, "glm": ONE_GLM, "megatron": MEGATRON}
CASES = {(name, harm): own for name in FORMATS for harm, own in (HARMS | ALONE[name]).items()}


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    return write_gpt2(tmp_path_factory.mktemp("gpt2"))


@pytest.mark.parametrize("case", CASES, ids=", ".join)
def test_what_is_wrong_is_named(case, gpt2, tmp_path, monkeypatch):
    checkpoint, harm = FORMATS[case[0]], CASES[case]
    monkeypatch.chdir(tmp_path)
    (source := tmp_path / "source").mkdir()

    def change(number, tensors):
        if harm.change and (number == 1 or not harm.alone):
            harm.change(tensors, checkpoint.words)

    if harm.count:
        checkpoint.write(source / "s", harm.count, change, **harm.extra)
        source = source / "s"
    if harm.damage:
        number, damage = harm.damage
        damage(checkpoint.file(source, number))
    words = [word.format(**checkpoint.words) for word in harm.words]
    options = checkpoint.options(gpt2) | harm.options
    refused(checkpoint.convert, source, tmp_path / "hf", *words, **options)
    assert not (tmp_path / "harmed").exists()


@pytest.mark.parametrize("name", FORMATS)
def test_a_folder_with_files_and_a_full_disk_are_left_alone(name, gpt2, tmp_path, monkeypatch):
    checkpoint, out = FORMATS[name], tmp_path / "hf"
    options = checkpoint.options(gpt2)
    source = checkpoint.write(tmp_path / "s", 1)
    out.mkdir()
    checkpoint.convert(source, out, **options)  # an empty folder will do
    before = sorted(file.name for file in out.iterdir())
    refused(checkpoint.convert, source, out, "not empty", **options)
    assert sorted(file.name for file in out.iterdir()) == before
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**9, 10**9, 1000))
    refused(checkpoint.convert, source, tmp_path / "full", "0.0 GB are free", **options)
