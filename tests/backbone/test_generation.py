"""What a backbone writes: equal to whole passes without a cache, alone or in a batch."""

from dataclasses import replace
from itertools import cycle, product

import pytest
import torch

from ptrun.backbone.base import BackboneInput, DecoderInput, Positions, Prefix
from ptrun.backbone.choosing import Decoding
from ptrun.backbone.generation import generate
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.method.lora import LoRA
from tests.backbone import types
from tests.exporting.runs import moved, shipped
from tests.small_runs import conll03
from tests.tiers import tiered

LENGTHS = (7, 4, 5)
NEW = 8
CLOSE = 1e-4  # two logits that rounding may swap
SOME = ["pocket_gpt2", "pocket_t5"]
KINDS = ["gemma2", "gemma3_text", "gpt_oss", "opt", "phi3", "gpt_neox", "qwen3_moe", "deepseek_v3"]
KINDS += ["bart", "pegasus", "marian", "t5gemma", "biogpt", "gpt_bigcode", "llama-yarn", "cohere2"]
KINDS += ["m2m_100"]
CLOSED = sorted(types.CLOSED.keys() - types.ENCODERS)


def asked(backbone, *, prefix):
    """Return three rows of different lengths, with random prefixes in each stack."""
    torch.manual_seed(1)
    shape, words = backbone.shape, backbone.model.get_input_embeddings().num_embeddings
    ids = torch.randint(5, words - 1, (len(LENGTHS), max(LENGTHS)))
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]

    def prefixes(layers):
        form = (len(LENGTHS), shape.heads, 3, shape.head_size)
        pairs = [(torch.randn(form) / 2, torch.randn(form) / 2) for _ in range(layers)]
        return tuple(Prefix(*pair) for pair in pairs) if prefix else None

    decoder = None
    if backbone.architecture.has_decoder:
        first = backbone.config.get("decoder_start_token_id") or 0
        start = torch.tensor([[first, 9]]).repeat(len(LENGTHS), 1)
        own = {name: prefixes(shape.decoder_layers) for name in ("prefixes", "cross")}
        decoder = DecoderInput(mask=torch.ones_like(start, dtype=torch.bool), ids=start, **own)
    shift = torch.full((len(LENGTHS),), 3) if prefix else None
    text = {"mask": mask, "lengths": list(LENGTHS), "ids": ids, "shift": shift}
    return BackboneInput(**text, prefixes=prefixes(shape.layers), decoder=decoder)


def row_of(given, row):
    length = int(given.mask[row].sum())

    def own(prefixes):
        if prefixes is None:
            return None
        return tuple(Prefix(p.key[row : row + 1], p.value[row : row + 1]) for p in prefixes)

    decoder = given.decoder
    if decoder is not None:
        start = decoder.ids[row : row + 1]
        pair = {"prefixes": own(decoder.prefixes), "cross": own(decoder.cross)}
        decoder = DecoderInput(mask=torch.ones_like(start, dtype=torch.bool), ids=start, **pair)
    return replace(
        given,
        mask=given.mask[row : row + 1, :length],
        lengths=[length],
        ids=given.ids[row : row + 1, :length],
        shift=None if given.shift is None else given.shift[row : row + 1],
        prefixes=own(given.prefixes),
        decoder=decoder,
    )


def whole_passes(backbone, given, ends=()):
    """Return the likeliest tokens, each from a pass over the whole row, and the closest choice."""
    written, closest = [], 1e9
    while len(written) < NEW and not (written and written[-1] in ends):
        more = torch.tensor([written], dtype=torch.long)
        if given.decoder is None:
            ids = torch.cat([given.ids, more], dim=1)
            mask = torch.ones_like(ids, dtype=torch.bool)
            now = replace(given, ids=ids, mask=mask, lengths=[ids.shape[1]])
        else:
            ids = torch.cat([given.decoder.ids, more], dim=1)
            mask = torch.ones_like(ids, dtype=torch.bool)
            now = replace(given, decoder=replace(given.decoder, ids=ids, mask=mask))
        last = Positions(torch.tensor([0]), torch.tensor([ids.shape[1] - 1]))
        with torch.no_grad():
            (logits,) = backbone.forward(replace(now, logits_at=last)).logits
        first, second = logits.topk(2).values.tolist()
        closest = min(closest, first - second)
        written.append(int(logits.argmax()))
    return written, closest


def loaded(kind, folder):
    if kind.startswith("pocket_"):
        return shipped(kind)
    backbone = PretrainedBackbone(name=kind, path=str(types.make(kind, folder)), dtype="fp32")
    backbone.read_weights()
    return backbone


@pytest.mark.parametrize(
    ("kind", "prefix"),
    tiered(
        [
            *product((*SOME, "gemma2"), (False, True)),
            *zip([*KINDS[1:], *CLOSED], cycle((True, False))),
        ],
        lambda kind, _: kind in (*SOME, "gemma2"),
    ),
)
def test_greedy_text_equals_whole_passes(kind, prefix, tmp_path):
    backbone = loaded(kind, tmp_path)
    prefix = prefix and not backbone.architecture.bars_prefixes
    given = asked(backbone, prefix=prefix)
    parts, decoding = [given], Decoding(max_new_tokens=NEW)
    if backbone.architecture.closed:  # rows of one length
        parts = [row_of(given, row) for row in range(len(LENGTHS))]
    own = [row for part in parts for row in generate(backbone, part, decoding)]
    aside = 0
    for row, written in enumerate(own):
        wanted, closest = whole_passes(backbone, row_of(given, row))
        aside += closest < CLOSE
        assert written == wanted or closest < CLOSE
        alone = row_of(given, row)
        assert generate(backbone, alone, Decoding(max_new_tokens=NEW)) == [written]
    assert aside < len(LENGTHS)


def test_padding_on_either_side_gives_one_text():
    backbone = shipped("pocket_gpt2")
    right = asked(backbone, prefix=True)
    order = right.mask.int().argsort(dim=1, stable=True)
    left = replace(
        right, ids=right.ids.gather(1, order), mask=right.mask.gather(1, order), lengths=None
    )
    decoding = Decoding(max_new_tokens=NEW)
    assert generate(backbone, left, decoding) == generate(backbone, right, decoding)


def test_an_end_ends_a_row_and_not_the_others():
    backbone = shipped("pocket_gpt2")
    given = asked(backbone, prefix=True)
    free = generate(backbone, given, Decoding(max_new_tokens=NEW))
    end = free[0][2]
    cut = generate(backbone, given, Decoding(max_new_tokens=NEW, ends=(end,)))
    assert cut[0] == free[0][: free[0].index(end) + 1]
    for row in (1, 2):
        assert cut[row] == free[row][: free[row].index(end) + 1 if end in free[row] else None]


@pytest.mark.parametrize("kind", SOME)
def test_beams_equal_those_of_the_library_on_a_merged_model(kind, tmp_path, data_dir):
    """Low-rank updates are added to the weights; the library then searches without ptrun."""
    import transformers

    backbone = shipped(kind)
    method = moved(lambda *own: LoRA(*own, rank=2, alpha=8), backbone, conll03(data_dir))
    given = asked(backbone, prefix=False)
    updates = method.updates(len(LENGTHS))
    decoding = Decoding(max_new_tokens=NEW, beams=4, length_penalty=1.0, ends=(1,))
    own = generate(backbone, replace(given, updates=[updates]), decoding)
    auto = "AutoModelForCausalLM" if kind == "pocket_gpt2" else "AutoModelForSeq2SeqLM"
    stock = getattr(transformers, auto).from_pretrained(backbone.folder, dtype=torch.float32)
    for path, update in updates.maps.items():
        added = update.scale * (update.up @ update.down)
        weight = stock.get_submodule(path).weight
        weight.data += (added.T if kind == "pocket_gpt2" else added).detach()
    for row, written in enumerate(own):
        alone = row_of(given, row)
        ids = {"input_ids": alone.ids, "attention_mask": alone.mask.long()}
        if given.decoder is not None:
            ids["decoder_input_ids"] = alone.decoder.ids
        options = {"max_new_tokens": NEW, "num_beams": 4, "do_sample": False, "eos_token_id": 1}
        (wanted,) = stock.generate(**ids, **options, pad_token_id=1).tolist()
        before = alone.ids if given.decoder is None else alone.decoder.ids
        tokens = wanted[before.shape[1] :]
        assert written == tokens[: tokens.index(1) + 1 if 1 in tokens else None]


def test_a_row_of_a_prefix_follows_its_beams():
    """Each row has a prefix of its own; beams of one row must not read another's."""
    backbone = shipped("pocket_gpt2")
    given = asked(backbone, prefix=True)
    decoding = Decoding(max_new_tokens=NEW, beams=3)
    together = generate(backbone, given, decoding)
    assert [generate(backbone, row_of(given, row), decoding)[0] for row in range(3)] == together
    assert together != generate(backbone, asked(backbone, prefix=False), decoding)


def test_draws_depend_on_the_row_alone():
    backbone = shipped("pocket_gpt2")
    given = asked(backbone, prefix=True)
    decoding = Decoding(max_new_tokens=NEW, temperature=1.0, top_k=20)
    together = generate(backbone, given, decoding, seeds=[5, 6, 7])
    alone = [generate(backbone, row_of(given, row), decoding, seeds=[5 + row]) for row in range(3)]
    assert [one for (one,) in alone] == together
    assert generate(backbone, given, decoding, seeds=[8, 9, 10]) != together


def in_blanks(given, backbone):
    """Return rows with a blank at their third token, in which a GLM writes."""
    start = torch.full((len(given.mask), 1), backbone.config["decoder_start_token_id"])
    types = torch.zeros_like(given.ids)
    types[:, 2] = 1
    decoder = DecoderInput(mask=torch.ones_like(start, dtype=torch.bool), ids=start)
    return replace(given, types=types, decoder=decoder)


@pytest.mark.parametrize("prefix", [False, True])
def test_a_blank_is_filled_as_by_whole_passes(prefix):
    backbone = shipped("pocket_glm")
    given = asked(backbone, prefix=prefix)
    alone = [in_blanks(row_of(given, row), backbone) for row in range(len(LENGTHS))]
    own = generate(backbone, in_blanks(given, backbone), Decoding(max_new_tokens=NEW))
    for row, written in zip(alone, own, strict=True):
        wanted, closest = whole_passes(backbone, row)
        assert written == wanted or closest < CLOSE
    decoding = Decoding(max_new_tokens=NEW, beams=3)
    together = generate(backbone, in_blanks(given, backbone), decoding)
    assert [generate(backbone, row, decoding)[0] for row in alone] == together


def test_a_masked_model_cannot_write():
    backbone = shipped("pocket_bert")
    with pytest.raises(UserError, match="cannot write text"):
        generate(backbone, asked(backbone, prefix=False), Decoding())
