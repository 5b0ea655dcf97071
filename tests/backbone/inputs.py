"""Small inputs that tests of all families share."""

from dataclasses import replace

import torch
import transformers

from ptrun.backbone.base import BackboneInput, DecoderInput, Positions, Prefix
from tests.conftest import CLASSES

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
KINDS = ("bert", "roberta", "electra", "albert", "deberta", "deberta-v2")
KINDS += ("gpt2", "llama", "megatron", "blocklm", "t5", "mt5")
DECODING = ("seq2seq", "infilling")
LENGTHS = (9, 5, 7)
BLANK, PROMPT = 3, 3
ANSWER = (3, 2, 3)
"""Tokens that the rows of a decoder have."""


def every(mask):
    return Positions(*mask.nonzero(as_tuple=True))


def rows(lengths, side="right", seed=3):
    """Return the ids and the mask of random rows, padded on a side."""
    generator = torch.Generator().manual_seed(seed)
    width = max(lengths)
    ids = torch.randint(5, 60, (len(lengths), width), generator=generator)
    mask = torch.zeros(len(lengths), width, dtype=torch.bool)
    for row, length in enumerate(lengths):
        mask[row, slice(0, length) if side == "right" else slice(width - length, width)] = True
        ids[row] = ids[row].roll(0 if side == "right" else width - length)
    return ids, mask


def text(backbone, side="right"):
    """Return random tokens, padded on a side, all real positions of the answering stack asked."""
    ids, mask = rows(LENGTHS, side)
    pad = backbone.config.get("pad_token_id", 0) or 0
    given = {"ids": ids.masked_fill(~mask, pad), "mask": mask}
    if backbone.family not in DECODING:
        return BackboneInput(**given, hidden_at=every(mask), logits_at=every(mask))
    if backbone.family == "infilling":  # the third token is the blank
        given["types"] = ((mask.cumsum(dim=1) == BLANK) & mask).long()
    ids, mask = rows(ANSWER, side, seed=4)
    decoder = DecoderInput(mask=mask, ids=ids)
    return BackboneInput(**given, hidden_at=every(mask), logits_at=every(mask), decoder=decoder)


def library(folder, kind):
    """Return the library's own model of a tiny folder."""
    return getattr(transformers, CLASSES[kind]).from_pretrained(folder, dtype=torch.float32).eval()


def outputs_of(model, given):
    """Return the library's logits and last hidden states at the positions that are asked for."""
    words = {"input_ids": given.ids, "attention_mask": given.mask.long()}
    if given.decoder is not None:
        words |= {"decoder_input_ids": given.decoder.ids}
        words |= {"decoder_attention_mask": given.decoder.mask.long()}
    output = model(**words, output_hidden_states=True)
    logits = output.prediction_logits if "prediction_logits" in output else output.logits
    states = output.hidden_states if given.decoder is None else output.decoder_hidden_states
    at = given.hidden_at
    return logits[at.rows, at.columns], states[-1][at.rows, at.columns]


def asked(backbone):
    """Return how many positions of each row `text` asks for."""
    return ANSWER if backbone.family in DECODING else LENGTHS


def stacks(backbone):
    """Return the layers of each stack: that of the text, and the decoder's if there is one."""
    model = backbone.model
    if backbone.family == "seq2seq":
        return {"text": model.encoder.block, "decoder": model.decoder.block}
    body = backbone.architecture.body(model)
    return {"text": body.get_submodule(backbone.architecture.paths.layers)}


def activations(backbone, given):
    """Return what every layer puts out in one pass, by stack: `[layers, B, T, H]`."""
    seen = {name: [] for name in stacks(backbone)}

    def keep(name):
        def see(_module, _arguments, out):
            tokens, states = backbone.injection.tokens, out[0] if isinstance(out, tuple) else out
            seen[name].append(states if tokens is None else tokens.unpack(states))

        return see

    handles = [
        layer.register_forward_hook(keep(name))
        for name, layers in stacks(backbone).items()
        for layer in layers
    ]
    output = backbone.forward(given)
    for handle in handles:
        handle.remove()
    return {name: torch.stack(own).detach() for name, own in seen.items()}, output


def leaves_of(backbone):
    """Return random prefixes of all stacks `[layers, 2, B, heads, P, d]`."""
    shape, generator = backbone.shape, torch.Generator().manual_seed(0)
    depths = {"text": shape.layers}
    if backbone.family == "seq2seq":
        depths |= {"decoder": shape.decoder_layers, "cross": shape.decoder_layers}
    size = (2, len(LENGTHS), shape.heads, PROMPT, shape.head_size)
    return {
        name: torch.randn(depth, *size, generator=generator).to(DEVICE).requires_grad_()
        for name, depth in depths.items()
    }


def placed(given):
    """Return an input on the device of the test."""
    moved = {
        name: value.to(DEVICE)
        for name in ("mask", "ids", "types")
        if (value := getattr(given, name, None)) is not None
    }
    half = getattr(given, "decoder", None)
    return replace(given, **moved, **({"decoder": placed(half)} if half else {}))


def passed(backbone, *, keyed, edits=None):
    """Return the outputs, and the gradients of embeddings and prefixes, of one pass."""
    given, leaves = placed(text(backbone)), leaves_of(backbone)
    seen = torch.tensor([[1, 1, 1], [1, 0, 1], [1, 1, 0]], dtype=torch.bool, device=DEVICE)
    made = {n: tuple(Prefix(k, v, seen) for k, v in own) for n, own in leaves.items()}
    leaves["words"] = backbone.embed(given.ids).detach().requires_grad_()
    keys = torch.arange(len(LENGTHS), device=DEVICE) + 7 if keyed else None
    whole = replace(given, ids=None, embeddings=leaves["words"], prefixes=made["text"], keys=keys)
    if "decoder" in made:
        half = replace(given.decoder, prefixes=made["decoder"], cross=made["cross"])
        whole = replace(whole, decoder=half)
    output = backbone.forward(replace(whole, edits=edits))
    logits = output.logits.float()
    gradients = torch.autograd.grad(logits.square().mean(), list(leaves.values()))
    return [output.hidden.detach().float(), logits.detach(), *gradients]
