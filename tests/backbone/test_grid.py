"""Every family x injection point: what an injection changes, exactly.

Precision and checkpointing are crossed by pairs: every injection point of a family in each.

One cell of one row is perturbed; the activations that differ, layer by layer and cell by cell, must
be those that attention lets it reach, and no others. Dropout is on. Then the invariants every
family keeps: padding side, order and company of rows, and word embeddings in place of ids.
"""

from dataclasses import replace

import pytest
import torch

from ptrun.backbone.base import BackboneInput, DecoderInput, Positions, Prefix
from tests.backbone.inputs import (
    KINDS,
    LENGTHS,
    activations,
    asked,
    every,
    library,
    outputs_of,
    stacks,
    text,
)
from tests.conftest import CLASSES
from tests.covering import covering
from tests.families import PaperBackbone
from tests.tiers import tiered

ROW, COLUMN, LAYER, PROMPT = 1, 2, 1, 4
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
PASSES = {False: "plain", True: "checkpointed"}
TOLERANCE = {"fp32": 1e-5, "bf16": 2e-2}  # relative, of gradients after recomputation
SEQ2SEQ = ("t5", "mt5")
POINTS = ("embedding", "prefix", "layer", "attention", "ffn")
DECODER_POINTS = ("d-embedding", "d-prefix", "d-cross-prefix", "d-layer", "d-attention", "d-cross")
DECODER_POINTS += ("d-ffn",)
CELLS = [(kind, point) for kind in KINDS for point in POINTS]
CELLS += [(kind, point) for kind in SEQ2SEQ for point in DECODER_POINTS]
CELLS += [("blocklm", "d-embedding")]  # whose answer is in the one stack, after the text


class Poke:
    """An injection at one point, and a leaf tensor that says by how much one cell is moved."""

    def __init__(self, backbone, point):
        self.backbone, self.point = backbone, point.removeprefix("d-")
        self.inside = "decoder" if point.startswith("d-") else "text"
        self.leaf = torch.zeros((), requires_grad=True)

    def given(self, amount):
        self.leaf = torch.tensor(float(amount), requires_grad=True)
        whole = replace(text(self.backbone), keys=torch.arange(len(LENGTHS)))
        half = whole.decoder if self.inside == "decoder" else whole
        half = self._moved(half)
        return replace(whole, decoder=half) if self.inside == "decoder" else half

    def _moved(self, half):
        def move(states):
            return states + (self.leaf * _cell(states.shape)).to(states.dtype)

        if self.point == "embedding":
            return replace(half, ids=None, embeddings=move(self.backbone.embed(half.ids)))
        if self.point == "prefix":
            return replace(half, prefixes=self._prefixes())
        if self.point == "cross-prefix":
            return replace(half, cross=self._prefixes())
        return replace(half, edits={(self.point, LAYER): move})

    def _prefixes(self):
        shape, layers = self.backbone.shape, len(stacks(self.backbone)[self.inside])
        size = (len(LENGTHS), shape.heads, PROMPT, shape.head_size)
        made = []
        for layer in range(layers):
            generator = torch.Generator().manual_seed(layer)
            key, value = torch.randn(2, *size, generator=generator)
            if layer == LAYER:  # one vector of one row
                spot = torch.zeros(size)
                spot[ROW, :, COLUMN] = 1.0
                key, value = key + self.leaf * spot, value + self.leaf * spot
            made.append(Prefix(key, value))
        return tuple(made)


def _cell(shape):
    """Return ones in one cell of one row, `[B, T, H]`, alternating in sign: no norm hides them."""
    spot = torch.zeros(shape)
    spot[ROW, min(COLUMN, shape[1] - 2)] = torch.tensor([1.0, -0.5]).repeat(shape[2])[: shape[2]]
    return spot


def reached(backbone, point, given, shapes):
    """Return which cells of `[layers, B, T]` an injection reaches, by stack."""
    if backbone.family == "infilling" and point.startswith("d-"):
        return _reached_in_answer(given, shapes)
    causal = {"text": backbone.family == "causal", "decoder": True}
    inside = "decoder" if point.startswith("d-") else "text"
    hit = {name: torch.zeros(shape[:3], dtype=torch.bool) for name, shape in shapes.items()}
    column = min(COLUMN, shapes[inside][2] - 2)
    own = hit[inside][:, ROW]
    if point.endswith("prefix"):
        own[LAYER:] = True
    else:
        first = 0 if point.endswith("embedding") else LAYER + 1
        own[first:, column if causal[inside] else 0 :] = True
        if first:
            own[LAYER, column] = True  # an edit stays in its cell until the next attention
    if inside == "text" and "decoder" in hit:
        hit["decoder"][:, ROW] = True
    return hit


def _reached_in_answer(given, shapes):
    """Return the cells of a blank infiller that see a token of its answer: those after it."""
    hit = torch.zeros(shapes["text"][:3], dtype=torch.bool)
    hit[:, ROW, LENGTHS[ROW] + min(COLUMN, given.decoder.mask.shape[1] - 2) :] = True
    return {"text": hit}


WAYS = covering(CELLS, DTYPES, (False, True))
WAYS += [(cell, "fp32", False) for cell in CELLS if (cell, "fp32", False) not in WAYS]


@pytest.mark.parametrize(
    ("kind", "point", "precision", "checkpointing"),
    tiered(
        [
            pytest.param(*cell, *way, id="-".join((*cell, way[0], PASSES[way[1]])))
            for cell, *way in WAYS
        ],
        lambda kind, point, *way: way == ("fp32", False),
    ),
)
def test_an_injection_changes_exactly_what_it_reaches(
    tiny_folder, kind, point, precision, checkpointing
):
    backbone = PaperBackbone(name=kind, path=str(tiny_folder(kind)))
    backbone.load(DTYPES[precision])
    poke = Poke(backbone, point)
    _, reference = _gradient(backbone, poke)
    backbone.checkpoint(checkpointing)
    before, _ = activations(backbone, poke.given(0.0))
    after, gradient = _gradient(backbone, poke)
    given = text(backbone)
    masks = {"text": given.mask, "decoder": given.decoder.mask if given.decoder else None}
    if backbone.family == "infilling":
        whole = torch.cat([given.mask, given.decoder.mask], dim=1)
        masks = {"text": whole.sort(dim=1, descending=True).values}  # padding comes last
    expected = reached(backbone, point, given, {n: a.shape for n, a in after.items()})
    for name, own in after.items():
        changed = (own != before[name]).any(dim=-1) & masks[name]
        assert torch.equal(changed, expected[name] & masks[name]), name
    assert gradient != 0
    assert abs(gradient - reference) <= TOLERANCE[precision] * abs(reference)


def _gradient(backbone, poke):
    """Return the activations with the cell moved, and the derivative of a loss by the move."""
    seen, output = activations(backbone, poke.given(3.0))
    output.hidden.float().square().sum().backward()
    return seen, float(poke.leaf.grad)


@pytest.mark.parametrize("kind", CLASSES)
def test_outputs_at_asked_positions_equal_the_library(tiny, tiny_folder, kind):
    given = text(tiny(kind))
    ours = tiny(kind).forward(given)
    logits, hidden = outputs_of(library(tiny_folder(kind), kind), given)
    torch.testing.assert_close(ours.logits, logits.view_as(ours.logits), atol=1e-5, rtol=0)
    torch.testing.assert_close(ours.hidden, hidden, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_side_order_and_company_change_no_logit(tiny, kind):
    backbone = tiny(kind)
    given, sizes = text(backbone), asked(backbone)
    together = backbone.forward(given).logits.split(sizes)
    left = backbone.forward(text(backbone, "left")).logits.split(sizes)
    turned = backbone.forward(_taken(given, [2, 1, 0])).logits.split(sizes[::-1])
    for row in range(len(LENGTHS)):
        alone = backbone.forward(_taken(given, [row])).logits
        for other in (together[row], left[row], turned[2 - row]):
            torch.testing.assert_close(other, alone, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_has_its_own_dropout_in_any_company(tiny, kind):
    backbone = tiny(kind)
    given, keys = text(backbone), torch.arange(len(LENGTHS))
    together = backbone.forward(replace(given, keys=keys)).logits.split(asked(backbone))
    for row, own in enumerate(together):
        alone = replace(_taken(given, [row]), keys=keys[row : row + 1])
        torch.testing.assert_close(own, backbone.forward(alone).logits, atol=1e-5, rtol=0)


def _taken(given, chosen):
    """Return the input with some of its rows, no wider than they need."""
    half = given.decoder
    mask, ids = _cut(given.mask[chosen], given.ids[chosen])
    types = None if given.types is None else given.types[chosen][:, : mask.shape[1]]
    if half is None:
        return BackboneInput(mask=mask, ids=ids, types=types, logits_at=every(mask))
    answer, words = _cut(half.mask[chosen], half.ids[chosen])
    decoder = DecoderInput(mask=answer, ids=words)
    return BackboneInput(mask=mask, ids=ids, types=types, logits_at=every(answer), decoder=decoder)


def _cut(mask, ids):
    width = int(mask.sum(dim=1).max())
    return mask[:, :width], ids[:, :width]


@pytest.mark.parametrize("kind", KINDS)
def test_word_embeddings_as_input_equal_token_ids(tiny, kind):
    backbone = tiny(kind)
    given = text(backbone)
    embedded = replace(given, ids=None, embeddings=backbone.embed(given.ids))
    if given.decoder:
        words = backbone.embed(given.decoder.ids)
        embedded = replace(embedded, decoder=replace(given.decoder, ids=None, embeddings=words))
    torch.testing.assert_close(
        backbone.forward(embedded).logits, backbone.forward(given).logits, atol=1e-6, rtol=0
    )


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_or_unseen_prefix_is_none_and_a_zero_prefix_is_not(tiny, kind):
    backbone = tiny(kind)
    given, shape = text(backbone), backbone.shape
    bare = backbone.forward(given).hidden

    def with_prefix(length, mask=None):
        nothing = torch.zeros(len(LENGTHS), shape.heads, length, shape.head_size)
        prefixes = (Prefix(nothing, nothing, mask),) * shape.layers
        return backbone.forward(replace(given, prefixes=prefixes)).hidden

    unseen = torch.zeros(len(LENGTHS), PROMPT, dtype=torch.bool)
    torch.testing.assert_close(with_prefix(0), bare, atol=1e-6, rtol=0)
    torch.testing.assert_close(with_prefix(PROMPT, unseen), bare, atol=1e-5, rtol=0)
    assert (with_prefix(PROMPT) - bare).abs().max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_computed_at_asked_positions_only(tiny, kind):
    backbone = tiny(kind)
    given = text(backbone)
    whole = backbone.forward(given).logits
    two = Positions(given.logits_at.rows[[4, 1]], given.logits_at.columns[[4, 1]])
    seen = []
    head = backbone.model.get_submodule(backbone.architecture.head)
    handle = head.register_forward_hook(lambda _m, inputs, _o: seen.append(inputs[0].shape[0]))
    some = backbone.forward(replace(given, logits_at=two)).logits
    handle.remove()
    assert seen == [2]
    torch.testing.assert_close(some, whole[[4, 1]], atol=1e-5, rtol=0)
