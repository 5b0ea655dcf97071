"""T5: buckets of a long prompt, prefixes without positions, its own output matrix."""

from dataclasses import replace

import torch

from ptrun.backbone.base import Prefix
from tests.backbone.inputs import ANSWER, LENGTHS, text

PROMPT = 100


def bucket(offset, *, both, count=32, far=128):
    """Return the relative bucket of one offset (key minus query), after Raffel et al. 2020."""
    own, add = (count // 2, count // 2 if offset > 0 else 0) if both else (count, 0)
    distance = abs(offset) if both else max(0, -offset)
    exact = own // 2
    if distance < exact:
        return add + distance
    grown = exact + int(
        (torch.tensor(distance / exact).log() / torch.tensor(far / exact).log()) * (own - exact)
    )
    return add + min(grown, own - 1)


def test_prompt_rows_take_part_in_relative_positions(tiny):
    """Behind 100 prompt rows, the encoder's bias is that of 100 ordinary tokens before the text."""
    backbone = tiny("t5")
    attention = backbone.model.encoder.block[0].layer[0].SelfAttention
    seen = []
    handle = attention.register_forward_hook(lambda _m, _a, out: seen.append(out[1]))
    given = text(backbone)
    rows = torch.randn(len(LENGTHS), PROMPT, backbone.shape.embedding_size)
    embedded = torch.cat([rows, backbone.embed(given.ids)], dim=1)
    mask = torch.cat([torch.ones(len(LENGTHS), PROMPT, dtype=torch.bool), given.mask], dim=1)
    backbone.forward(replace(given, ids=None, embeddings=embedded, mask=mask))
    handle.remove()
    bias, table = seen[0][0], attention.relative_attention_bias.weight
    query = PROMPT + 3
    for key in (0, 1, 50, PROMPT - 1, PROMPT, query, query + 2):
        assert torch.equal(bias[:, query, key], table[bucket(key - query, both=True)])
    far = [bucket(key - 140, both=True) for key in range(13)]
    assert set(far) == {15}  # text 128 tokens or more behind a prompt row: one bucket


def test_a_prefix_has_no_position(tiny):
    """The text's scores keep their bias, and prefix keys get none: checked in one layer by hand."""
    backbone = tiny("t5")
    shape, given = backbone.shape, text(backbone)
    attention = backbone.model.encoder.block[0].layer[0].SelfAttention
    seen = []
    handle = attention.register_forward_hook(lambda _m, a, out: seen.append((a[0], out)))
    key, value = torch.randn(2, len(LENGTHS), shape.heads, 4, shape.head_size)
    prefixes = (Prefix(key, value), None, None)
    backbone.forward(replace(given, prefixes=prefixes))
    handle.remove()
    hidden, (found, bias, _) = seen[0]
    row, length = 1, LENGTHS[1]
    x = hidden[row, :length]
    query, own, kept = (
        getattr(attention, n)(x).view(length, shape.heads, -1).transpose(0, 1) for n in "qkv"
    )
    text_scores = query @ own.transpose(1, 2) + bias[0, :, :length, :length]
    scores = torch.cat([query @ key[row].transpose(1, 2), text_scores], dim=-1)
    mixed = scores.softmax(-1) @ torch.cat([value[row], kept], dim=1)
    expected = attention.o(mixed.transpose(0, 1).reshape(length, -1))
    torch.testing.assert_close(found[row, :length], expected, atol=1e-5, rtol=0)


def test_a_cross_prefix_stands_before_what_is_read_of_the_encoder(tiny):
    """Cross-attention of one decoder layer by hand: prefix and text, neither with a bias."""
    backbone = tiny("t5")
    shape, given = backbone.shape, text(backbone)
    attention = backbone.model.decoder.block[0].layer[1].EncDecAttention
    seen = []
    handle = attention.register_forward_hook(
        lambda _m, a, k, out: seen.append((a[0], k["key_value_states"], out[0])), with_kwargs=True
    )
    key, value = torch.randn(2, len(LENGTHS), shape.heads, 4, shape.head_size)
    decoder = replace(given.decoder, cross=(Prefix(key, value), None))
    backbone.forward(replace(given, decoder=decoder))
    handle.remove()
    hidden, read, found = seen[0]
    row, length, answer = 1, LENGTHS[1], ANSWER[1]
    query, own, kept = (
        getattr(attention, n)(x).unflatten(-1, (shape.heads, -1)).transpose(0, 1)
        for n, x in (
            ("q", hidden[row, :answer]),
            ("k", read[row, :length]),
            ("v", read[row, :length]),
        )
    )
    scores = query @ torch.cat([key[row], own], dim=1).transpose(1, 2)
    mixed = scores.softmax(-1) @ torch.cat([value[row], kept], dim=1)
    expected = attention.o(mixed.transpose(0, 1).reshape(answer, -1))
    torch.testing.assert_close(found[row, :answer], expected, atol=1e-5, rtol=0)


def test_inputs_end_without_a_mark(shared):
    from ptrun.backbone import tokenizers

    for kind in ("t5", "mt5"):
        tokenizer = tokenizers.load(shared / "models" / "tokenizers" / "t5", kind)
        ids = tokenizer("a good film", "a bad plot")["input_ids"]
        assert tokenizer.eos_token_id not in ids
        assert tokenizer.convert_tokens_to_ids("<extra_id_0>") == 32099
