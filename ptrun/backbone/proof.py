"""Whether prompts work in a loaded backbone: tried on a few tokens, not looked up in a list.

    ptrun doctor backbone=NAME        # shows each check, and which methods fit

A model type without an entry is accepted when all checks pass, once for its weights, precision and
versions; `$XDG_CACHE_HOME/ptrun/proofs` remembers it.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from ptrun.backbone.attention import Sight
from ptrun.backbone.base import (
    BackboneInput,
    BackboneOutput,
    DecoderInput,
    Edit,
    Positions,
    Prefix,
    Site,
)  # fmt: skip
from ptrun.backbone.files import cache_file
from ptrun.errors import UserError, of_device

_LIMIT = {torch.float32: 2e-4, torch.bfloat16: 6e-2, torch.float16: 2e-2}
"""The largest difference allowed, as a share of the largest number that is compared."""
_STEPS = 1e-2, 1e-3, 1e-4, 1e-5, 1e-6  # of finite differences; a router of experts may jump in one
_SLOPE = 2e-2
_Pairs = dict[int, tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class ModelCheck:
    """One check of a backbone.

    Args:
        name: what must hold.
        far: how far it is from holding, as a share.
        limit: the largest that is allowed.
        where: the first layer that is too far, or "".

    >>> from ptrun.backbone.proof import ModelCheck
    >>> ModelCheck("logits are the model's own", far=float("nan"), limit=1e-4).passed
    False
    """

    name: str
    far: float
    limit: float
    where: str = ""

    @property
    def passed(self) -> bool:
        """Whether it holds; nan does not."""
        return self.far <= self.limit


def accept(backbone: Any) -> None:
    """Check a loaded backbone whose family was probed, once; a refusal names the layer."""
    code = b"".join(file.read_bytes() for file in sorted(Path(__file__).parent.glob("*.py")))
    versions = torch.__version__, transformers.__version__, hashlib.sha256(code).hexdigest()
    division = backbone.division
    facts = (*versions, backbone.weights, str(backbone.model.dtype), backbone.quantization)
    proofs = cache_file("proofs", repr((*facts, division.size if division else 1)))
    proven = proofs.is_file()
    if division:  # the checks exchange messages, so all ranks make them or none
        proven = not division.summed(torch.tensor(int(not proven), device=division.device))
    if proven:
        return
    checks = prove(backbone)
    for check in checks:
        if not check.passed:
            where = f", first in {check.where}" if check.where else ""
            raise UserError(
                f"backbone={backbone.name}: prompts do not work in this model. It must hold that "
                f"{check.name}; the difference is {check.far:.1e}{where}, and {check.limit:.0e} is "
                "allowed. Choose another backbone."
            )
    proofs.parent.mkdir(parents=True, exist_ok=True)
    proofs.write_text(json.dumps({check.name: check.far for check in checks}))


def prove(backbone: Any) -> list[ModelCheck]:
    """Return the checks of a loaded backbone.

    1. It computes what transformers computes, for rows of different lengths.
    2. Keys and values that one pass over a text and an input records are a prefix that stands for
       the text: the input alone, with this prefix and its positions moved, gives the same states.
       This holds for encoders too, because the keys are those of the joint pass.
    3. A prefix of one row moves that row, in every layer, and no other row.
    4. Gradients are slopes.

    In a family with closed layers input vectors take the place of prefixes: those of the words are
    the words. A model whose own code stops is refused.
    """
    try:
        return _checks(backbone)
    except Exception as error:  # a model's own code raises what it likes
        if isinstance(error, UserError | MemoryError) or of_device(error):
            raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise UserError(
            f"backbone={backbone.name}: {backbone.architecture.library} cannot read a few tokens "
            f"with a prompt ({reason}). Choose another backbone."
        ) from error


def _checks(backbone: Any) -> list[ModelCheck]:
    inputs = _rows(backbone, (7, 4))
    seen = inputs.mask if inputs.decoder is None else inputs.decoder.mask
    rows, columns = seen.nonzero(as_tuple=True)
    at = "logits_at" if backbone.has_head else "hidden_at"
    with torch.no_grad():
        states, ours = _read(backbone, inputs, **{at: Positions(rows, columns)})
        theirs, logits = _stock(backbone, inputs)
    pairs = [(a[inputs.mask], b[inputs.mask]) for a, b in zip(states, theirs, strict=True)]
    if ours.logits is not None:
        pairs.append((ours.logits, logits[rows, columns].view_as(ours.logits)))
    bare = _compared(backbone, "the bare backbone computes what transformers computes", pairs)
    if backbone.architecture.closed:
        return [bare, *_vectors(backbone, inputs, states)]
    prefixes, joint = _joint(backbone)
    leaves = [x.repeat(2, 1, 1, 1) for pair in prefixes.values() for x in pair]

    def put(rows: BackboneInput, tensors: Sequence[Tensor]) -> BackboneInput:
        pairs = zip(tensors[::2], tensors[1::2], strict=True)
        return replace(rows, prefixes=tuple(Prefix(*pair) for pair in pairs))

    name = "a prefix moves its own row, in each layer, and no other"
    return [bare, joint, *_slopes(backbone, name, leaves, put)]


def _rows(backbone: Any, lengths: Sequence[int]) -> BackboneInput:
    """Return rows of fixed tokens."""
    device = backbone.model.device
    longest, words = max(lengths), backbone.model.get_input_embeddings().num_embeddings
    ids = 5 + torch.arange(len(lengths) * longest, device=device).view(-1, longest) * 7 % (
        words - 8
    )
    ends = torch.tensor(lengths, device=device)[:, None]
    mask = torch.arange(longest, device=device) < ends
    decoder = None
    if backbone.architecture.has_decoder:
        decoder = DecoderInput(mask=torch.ones_like(mask[:, :3]), ids=ids[:, :3].flip(1))
    return BackboneInput(mask=mask, lengths=list(lengths), ids=ids, decoder=decoder)


def _read(
    backbone: Any, inputs: BackboneInput, **at: Positions
) -> tuple[list[Tensor], BackboneOutput]:
    """Return the states of the text after each layer, `[B, T, H]`, and the outputs asked for."""
    states: list[Tensor] = []

    def keep(hidden: Tensor) -> Tensor:
        states.append(hidden)
        return hidden

    edits: dict[Site, Edit] = {("layer", i): keep for i in range(len(_layers(backbone)))}
    at = at or {"hidden_at": Positions(*inputs.mask.nonzero(as_tuple=True))}
    output = backbone.forward(replace(inputs, edits=edits, **at))  # type: ignore[arg-type]
    return states, output


def _stock(backbone: Any, inputs: BackboneInput) -> tuple[list[Tensor], Tensor]:
    """Return the states after each layer and the logits by transformers, closed ones row by row."""
    states: list[Tensor] = []
    model, config, layers = backbone.model.eval(), backbone.model.config, _layers(backbone)
    more = {} if inputs.decoder is None else {"decoder_input_ids": inputs.decoder.ids}
    hooks = [
        layer.register_forward_hook(
            lambda _m, _i, out: states.append(out[0] if isinstance(out, tuple) else out)
        )
        for layer in layers
    ]
    assert inputs.ids is not None and inputs.lengths is not None
    usual, config._attn_implementation = config._attn_implementation, "eager"
    try:
        if not backbone.architecture.closed:
            mask = inputs.mask.long()
            return states, model(input_ids=inputs.ids, attention_mask=mask, **more).logits
        rows = [row[None, :n] for row, n in zip(inputs.ids, inputs.lengths, strict=True)]
        uncached = {"use_cache": False} if backbone.architecture.left_to_right else {}
        logits = [model(input_ids=row, **uncached).logits[0] for row in rows]
        of_layers = [states[i :: len(layers)] for i in range(len(layers))]
        return [_grid([s[0] for s in of_rows]) for of_rows in of_layers], _grid(logits)
    finally:
        config._attn_implementation = usual
        for hook in hooks:
            hook.remove()


def _grid(rows: Sequence[Tensor]) -> Tensor:
    return nn.utils.rnn.pad_sequence(list(rows), batch_first=True)


def _layers(backbone: Any) -> Any:
    return backbone.architecture.layers(backbone.model)


def _joint(backbone: Any) -> tuple[_Pairs, ModelCheck]:
    """Return a prefix for each layer `[1, heads, P, d]`; check that it stands for P tokens."""
    for prompt, length in ((4, 5), (2, 1)):  # the second for narrow windows
        joint = replace(_rows(backbone, (prompt + length,)), decoder=None)
        seen = backbone.injection.seen = {}
        try:
            with torch.no_grad():
                joined, _ = _read(backbone, joint)
        finally:
            backbone.injection.seen = None
        bounds = [m.reach.before for _, _, m in seen.values() if isinstance(m, Sight)]
        if all(bound is None or bound >= prompt + length - 1 for bound in bounds):
            break
    pairs: _Pairs = {}
    for (_, (_, layer)), (key, value, _) in seen.items():
        if division := backbone.division:  # which has some of the heads
            key, value = division.whole(key, 1), division.whole(value, 1)
        pairs[layer] = key[:, :, :prompt], value[:, :, :prompt]
    # the input after the text, with the prefix of the text and its positions moved
    assert joint.ids is not None
    alone = replace(
        joint,
        ids=joint.ids[:, prompt:],
        mask=joint.mask[:, prompt:],
        lengths=[length],
        shift=torch.full_like(joint.ids[:, 0], prompt),
        prefixes=tuple(Prefix(*pairs[layer]) for layer in sorted(pairs)),
    )
    with torch.no_grad():
        states, _ = _read(backbone, alone)
    name = "keys and values of a joint pass stand for its text"
    both = [(state, other[:, prompt:]) for state, other in zip(states, joined, strict=True)]
    return pairs, _compared(backbone, name, both)


def _vectors(backbone: Any, inputs: BackboneInput, states: Sequence[Tensor]) -> list[ModelCheck]:
    """Return the checks of input vectors: the words' own give the same states; then `_slopes`."""

    def put(rows: BackboneInput, tensors: Sequence[Tensor]) -> BackboneInput:
        return replace(rows, ids=None, embeddings=tensors[0])

    with torch.no_grad():
        read, _ = _read(backbone, put(inputs, [backbone.embed(inputs.ids)]))
    pairs = [(a[inputs.mask], b[inputs.mask]) for a, b in zip(read, states, strict=True)]
    words = _compared(backbone, "vectors of the words stand for the words", pairs)
    assert inputs.ids is not None and inputs.lengths is not None
    least = min(inputs.lengths)
    cut = replace(inputs, ids=inputs.ids[:, :least], mask=inputs.mask[:, :least], lengths=None)
    with torch.no_grad():
        first, _ = _read(backbone, cut)
    pairs = [(a, b[:, :least]) for a, b in zip(first, states, strict=True)]
    ahead = _compared(backbone, "a token sees none after it", pairs)
    order = [ahead] if backbone.architecture.left_to_right else []
    name = "a vector moves its own row, and no other"
    leaf = backbone.embed(_rows(backbone, (4, 4)).ids)
    return [words, *order, *_slopes(backbone, name, [leaf], put)]


def _slopes(
    backbone: Any,
    name: str,
    leaves: Sequence[Tensor],
    put: Callable[[BackboneInput, Sequence[Tensor]], BackboneInput],
) -> list[ModelCheck]:
    """Return the checks that leaves `[2, ...]`, put into two rows, move them, and of slopes."""
    inputs = replace(_rows(backbone, (4, 4)), decoder=None)
    leaves = [leaf.detach().requires_grad_() for leaf in leaves]
    weights = torch.linspace(-1, 1, backbone.shape.hidden_size, device=backbone.model.device)

    def of(tensors: Sequence[Tensor]) -> Tensor:
        """Return one number a row, `[2]`."""
        rows = Positions(*inputs.mask.nonzero(as_tuple=True))
        hidden: Tensor = backbone.forward(replace(put(inputs, tensors), hidden_at=rows)).hidden
        return (hidden.float() @ weights).view(2, -1).sum(dim=1)

    with torch.enable_grad():
        slopes = torch.autograd.grad(of(leaves)[0], leaves)
    other = max(float(slope[1].abs().max()) for slope in slopes)
    still = [i // 2 for i, slope in enumerate(slopes) if not float(slope[0].abs().max()) > 0]
    where = f"layer {still[0] + 1}" if still else ""
    moves = ModelCheck(name, other + len(still), 0.0, where)
    if backbone.model.dtype != torch.float32:
        return [moves]  # differences of rounded numbers say nothing of slopes
    steepest, size = map(_norm, (slopes, leaves))
    wrong = []
    for step in _STEPS:
        with torch.no_grad():
            ahead, back = (
                of([a + way * b for a, b in zip(leaves, slopes, strict=True)])[0]
                for way in (step * size / steepest, -step * size / steepest)
            )
        wrong.append(abs(float(ahead - back) / (2 * step * size) - steepest) / steepest)
    return [moves, ModelCheck("gradients are slopes", min(wrong), _SLOPE)]


def _norm(tensors: Sequence[Tensor]) -> float:
    return float(torch.stack([t.detach().norm() for t in tensors]).norm().clamp(min=1e-12))


def _compared(backbone: Any, name: str, pairs: Sequence[tuple[Tensor, Tensor]]) -> ModelCheck:
    """Return a check that pairs of states, layer by layer, are equal."""
    limit = _LIMIT[backbone.model.dtype]
    shares = [
        float((a.float() - b.float()).abs().max() / b.float().abs().max().clamp(min=1e-9))
        for a, b in pairs
    ]
    wrong = next((i for i, far in enumerate(shares) if not far <= limit), None)
    places = [*(f"layer {i + 1}" for i in range(len(_layers(backbone)))), "the head"]
    return ModelCheck(name, max(shares), limit, "" if wrong is None else places[wrong])
