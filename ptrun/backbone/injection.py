"""What a backbone's modules use in the current pass: prefixes, edits, updates and dropout keys."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Literal, cast

import torch
import torch.distributed
from torch import Tensor, nn

from ptrun.backbone.base import BackboneInput, DecoderInput, Prefix, Site, Updates
from ptrun.backbone.dropout import Keyed
from ptrun.backbone.packing import Members, Packing, members_of


@dataclass(frozen=True)
class Division:
    """One of `size` ranks that hold a model together.

    Args:
        rank: rank in the group, from 0.
        size: number of ranks in the group.
        group: the process group.
        device: device of the rank's part.

    >>> from ptrun.backbone.injection import Division
    >>> half = Division(rank=1, size=2, group=None, device="cpu")
    >>> half.first(width=4)
    4
    """

    rank: int
    size: int
    group: Any
    device: str

    def summed(self, part: Tensor) -> Tensor:
        """Return the sum of the ranks' tensors, a new tensor."""
        total = part.clone(memory_format=torch.contiguous_format)
        torch.distributed.all_reduce(total, group=self.group)
        return total

    def own(self, tensor: Tensor, axis: int) -> Tensor:
        """Return this rank's part of a replicated tensor; backward gathers the whole gradient."""
        return _exchange(partial(self._part, axis), partial(self._gathered, axis), tensor)

    def whole(self, part: Tensor, axis: int) -> Tensor:
        """Return the tensor gathered from all ranks; backward keeps this rank's gradient."""
        return _exchange(partial(self._gathered, axis), partial(self._part, axis), part)

    def read(self, tensor: Tensor) -> Tensor:
        """Return a replicated tensor for divided maps to read; backward sums over the ranks."""
        return _exchange(lambda same: same.view_as(same), self.summed, tensor)

    def sum(self, part: Tensor) -> Tensor:
        """Return the sum over the ranks; each keeps its whole gradient in the backward pass."""
        return _exchange(self.summed, lambda same: same.view_as(same), part)

    def first(self, width: int) -> int:
        """Return where this rank's part begins if each part is `width` wide."""
        return self.rank * width

    def _part(self, axis: int, tensor: Tensor) -> Tensor:
        width = tensor.shape[axis] // self.size
        return tensor.narrow(axis, self.first(width), width).contiguous()

    def _gathered(self, axis: int, part: Tensor) -> Tensor:
        part = part.contiguous()
        parts = [torch.empty_like(part) for _ in range(self.size)]
        torch.distributed.all_gather(parts, part, group=self.group)
        return torch.cat(parts, dim=axis)


class _Exchange(torch.autograd.Function):
    """Applies `there` to a tensor, and `back` to its gradient in the backward pass."""

    @staticmethod
    def forward(ctx: Any, there: Any, back: Any, tensor: Tensor) -> Any:
        ctx.back = back
        return there(tensor)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return None, None, ctx.back(gradients[0])


def _exchange(there: Any, back: Any, tensor: Tensor) -> Tensor:
    exchanged: Tensor = _Exchange.apply(there, back, tensor)  # type: ignore[no-untyped-call]
    return exchanged


Reader = Literal["text", "decoder"]
_DROPOUT_SITE = 2_000_000  # of attention weights, beyond the sites of any model's own dropouts
_HEADS = 1  # the axis of heads in a prefix and in attention weights


class Injection:
    """The input of the current pass and its dropout keys, for attention, dropout and hooks.

    `packing` is set if the model reads packed tokens, and `tokens` says which of them the current
    module reads: the last layer may narrow them to those that are requested. `unit` is the divisor
    of the backbone's residual stream (`ptrun.backbone.seq2seq`). `places` are the position ids of
    the tokens that a step of generation reads; None: all are read. `seen` receives the keys,
    values and mask of each attention, unless it is None.

    >>> import torch
    >>> from ptrun.backbone.base import BackboneInput
    >>> from ptrun.backbone.injection import Injection
    >>> injection, batch = Injection(), BackboneInput(torch.ones(1, 3, dtype=torch.bool))
    >>> with injection.of(batch):
    ...     injection.given is batch
    True
    """

    given: BackboneInput | None = None
    keys: Tensor | None = None
    packing: Packing | None = None
    tokens: Packing | None = None
    unit: float = 1.0
    places: Tensor | None = None
    seen: dict[tuple[Reader, Site], tuple[Tensor, Tensor, Any]] | None = None

    def __init__(self, division: Division | None = None):
        self.division = division
        self._members: tuple[Packing, Members] | None = None  # of the last `tokens`

    def read_by(self, reader: Reader) -> BackboneInput | DecoderInput | None:
        """Return the half of the input that a stack reads."""
        return self.given.decoder if self.given and reader == "decoder" else self.given

    @property
    def edits(self) -> bool:
        """Whether the current pass edits hidden states."""
        return bool(self.given and self.given.edits)

    def grid(self, reader: Reader, hidden: Tensor) -> Tensor:
        """Return states `[B, T, H]`, or packed ones `[1, N, H]`; OPT's code flattens some."""
        half = self.read_by(reader)
        if hidden.dim() > 2 or half is None:
            return hidden
        return hidden[None] if self.packing else hidden.view(len(half.mask), -1, hidden.shape[-1])

    def edited(self, reader: Reader, site: Site, hidden: Tensor) -> Tensor:
        """Return hidden states after the edit of a site."""
        half = self.read_by(reader)
        assert half is not None and half.edits is not None
        grid = hidden if self.packing is None else self.packing.unpack(hidden)
        if self.unit == 1.0:
            changed = half.edits[site](grid)
        else:
            changed = half.edits[site](grid.float() * self.unit)  # fp16 may not hold it
            changed = (changed / self.unit).to(grid.dtype)
        return changed if self.packing is None else cast(Tensor, self.packing.pack(changed))

    def members(self, updates: Sequence[Updates]) -> Members:
        """Return the packed tokens of members with updates, for the current module."""
        assert self.tokens is not None and self.packing is not None
        if self._members is None or self._members[0] is not self.tokens:
            rows = [update.rows for update in updates]
            counts = [update.reads for update in updates]  # of a narrowed last layer
            if self.tokens is self.packing:
                tokens = iter(self.packing.tokens)
                counts = [sum(islice(tokens, n)) for n in rows]
            self._members = self.tokens, members_of(self.tokens, rows, counts)
        return self._members[1]

    def narrow(self, *states: Tensor) -> tuple[Tensor, ...]:
        """Return the states `[1, K, H]` of requested tokens, if the model reads packed tokens.

        The last layer may do so before its feed-forward layer; edits need all tokens until its end.
        """
        if self.packing is None or self.given is None or self.tokens is not self.packing:
            return states
        places = self.packing.places(self.given.requested)
        self.tokens = self.packing.only(places)
        return tuple(state.index_select(1, places) for state in states)

    def of(
        self, inputs: BackboneInput, packing: Packing | None = None
    ) -> AbstractContextManager[None]:
        """Make `inputs` the current input for one pass, with this rank's heads of its prefixes."""
        return self._during(
            inputs if self.division is None else _own(inputs, self.division), packing
        )

    @contextmanager
    def _during(self, inputs: BackboneInput, packing: Packing | None) -> Iterator[None]:
        before = self.given, self.keys, self.packing, self.tokens
        self.given, self.keys, self.packing, self.tokens = inputs, inputs.keys, packing, packing
        try:
            yield
        finally:
            self.given, self.keys, self.packing, self.tokens = before
            self._members = None

    def replay(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """Return contexts for a checkpointed forward pass and for its recomputation."""
        again = self._during(self.given, self.packing) if self.given else nullcontext()
        return nullcontext(), again


def keyed(
    keys: Tensor | None, tokens: Packing | None, site: int, p: float, origin: int = 0
) -> Keyed | None:
    """Return the dropout of rows `[B, ...]`, or of packed tokens `[1, N, H]`; None: there is none.

    `keys` are those of the rows.
    """
    if keys is None or p == 0.0:
        return None
    rows, columns = (None, None) if tokens is None else (tokens.rows, tokens.columns)
    return Keyed(keys, site, p, origin, rows=rows, columns=columns)


def _own(inputs: BackboneInput, division: Division) -> BackboneInput:
    """Return an input with one rank's heads of its prefixes."""
    decoder = inputs.decoder
    if decoder is not None:
        kinds = _heads(decoder.prefixes, division), _heads(decoder.cross, division)
        decoder = replace(decoder, prefixes=kinds[0], cross=kinds[1])
    return replace(inputs, prefixes=_heads(inputs.prefixes, division), decoder=decoder)


def _heads(
    prefixes: tuple[Prefix | None, ...] | None, division: Division
) -> tuple[Prefix | None, ...] | None:
    """Return one rank's heads; the gradients of all layers are gathered by one message."""
    tensors = [t for prefix in prefixes or () if prefix for t in (prefix.key, prefix.value)]
    if prefixes is None or not tensors:
        return prefixes
    parts = iter(division.own(torch.stack(tensors), 1 + _HEADS).unbind())
    return tuple(prefix and Prefix(next(parts), next(parts), prefix.mask) for prefix in prefixes)


@dataclass(frozen=True)
class Link:
    """Connects an attention module to its prefixes and to its dropout site.

    >>> from ptrun.backbone.injection import Injection, Link
    >>> Link(Injection(), "text", ("attention", 0)).prefix() is None  # outside of a pass
    True
    """

    injection: Injection
    reader: Reader
    site: Site

    def prefix(self) -> Prefix | None:
        """Return the prefix of this layer in the current pass, for the heads of this rank."""
        half = self.injection.read_by(self.reader)
        kind, layer = self.site
        prefixes: Any = getattr(half, "cross" if kind == "cross" else "prefixes", None)
        prefix: Prefix | None = prefixes[layer] if prefixes else None
        return prefix

    def show(self, key: Tensor, value: Tensor, mask: Any) -> None:
        """Put keys and values `[B, heads, T, d]` and their mask into `Injection.seen`."""
        if self.injection.seen is not None:
            self.injection.seen[self.reader, self.site] = key, value, mask

    def keyed(self, heads: int, p: float) -> Keyed | None:
        """Return the dropout of attention weights, for the heads of this rank, or None."""
        keys, division, (kind, layer) = self.injection.keys, self.injection.division, self.site
        if keys is None or p == 0.0:
            return None
        stack = 2 * (self.reader == "decoder") + (kind == "cross")
        start = division.first(heads) if division else 0
        return Keyed(keys, _DROPOUT_SITE + 1000 * stack + layer, p, start=start)


def link_of(module: Any) -> Link:
    """Return the link that `wire` attached to an attention module."""
    return module.ptrun_link  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Paths:
    """Dotted paths to the parts of a stack: `layers` from its root, the others from a layer.

    `attention` and `cross` compute attention. `attended`, `crossed` and `grown` return the outputs
    of attention, cross-attention and feed-forward, before dropout and residual.
    """

    layers: str
    attention: str
    attended: str
    grown: str
    cross: str | None = None
    crossed: str | None = None


def wire(root: nn.Module, paths: Paths, injection: Injection, reader: Reader = "text") -> None:
    """Connect every layer of a stack to the current pass."""
    layers: Any = root.get_submodule(paths.layers)
    for index, layer in enumerate(layers):
        attention = layer.get_submodule(paths.attention)
        attention.ptrun_link = Link(injection, reader, ("attention", index))
        hook(layer, injection, reader, ("layer", index))
        hook(layer.get_submodule(paths.attended), injection, reader, ("attention", index))
        hook(layer.get_submodule(paths.grown), injection, reader, ("ffn", index))
        if paths.cross and paths.crossed:
            cross = layer.get_submodule(paths.cross)
            cross.ptrun_link = Link(injection, reader, ("cross", index))
            hook(layer.get_submodule(paths.crossed), injection, reader, ("cross", index))


def hook(module: nn.Module, injection: Injection, reader: Reader, site: Site) -> None:
    """Apply the edits of a site to a module's output, or to the first of its outputs."""

    def edit(_module: nn.Module, _arguments: object, output: Any) -> Any:
        half = injection.read_by(reader)
        if half is None or not half.edits or site not in half.edits:
            return output
        hidden = output[0] if isinstance(output, tuple) else output
        edited = injection.edited(reader, site, injection.grid(reader, hidden)).view(hidden.shape)
        return (edited, *output[1:]) if isinstance(output, tuple) else edited

    module.register_forward_hook(edit)


class KeyedDropout(nn.Module):
    """Replaces an `nn.Dropout` of a backbone; uses the keys of the current pass.

    `cut` is True if each rank of a tensor-parallel group has a part of the last axis.

    >>> import torch
    >>> from ptrun.backbone.injection import Injection, KeyedDropout
    >>> KeyedDropout(0.5, 0, Injection())(torch.ones(1, 4)).tolist()  # no keys: nothing is dropped
    [[1.0, 1.0, 1.0, 1.0]]
    """

    cut: bool = False

    def __init__(self, p: float, site: int, injection: Injection):
        super().__init__()
        self.p, self.site, self.injection = p, site, injection

    def forward(self, x: Tensor) -> Tensor:
        """Return `x`, `[B, ...]` or packed tokens `[1, N, H]`, with this site's cells dropped."""
        dropout = self.keyed(x.shape[-1])
        return x if dropout is None else dropout(x)

    def keyed(self, width: int) -> Keyed | None:
        """Return the dropout of the current pass, for states of a width; None: there is none."""
        division = self.injection.division if self.cut else None
        origin = -division.first(width) if division else 0
        return keyed(self.injection.keys, self.injection.tokens, self.site, self.p, origin)


def install(model: nn.Module, injection: Injection) -> None:
    """Replace every `nn.Dropout` of a model, numbering the sites in module order."""
    sites = [
        (parent, name)
        for parent in model.modules()
        for name, child in parent.named_children()
        if isinstance(child, nn.Dropout)
    ]
    for site, (parent, name) in enumerate(sites):
        dropout = KeyedDropout(getattr(parent, name).p, site, injection)
        dropout.cut = hasattr(parent, "wo")  # T5's feed-forward layer drops its wide states
        setattr(parent, name, dropout)
