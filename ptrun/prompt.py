"""The learned modules that methods and read-outs share: vectors, encoder, prefix, linear maps."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Literal

import torch
from torch import Tensor, nn

from ptrun.errors import UserError

# Soft prompt: learned vectors at the input.


class SoftPrompt(nn.Module):
    """A table `[P, E]` of learned input vectors.

    `mlp` may have a network for all vectors, or one for each, whose output joins them.

    Args:
        length: P, in vectors.
        width: E, the width of word embeddings.
        rescale: the factor from the stored table to the vectors.

    Raises:
        UserError: `length` is below 1, or `rescale` is not above 0.
    """

    def __init__(self, length: int, width: int, rescale: float = 1.0):
        super().__init__()
        if length < 1:
            raise UserError(f"method.length is {length}; use 1 or more.")
        if rescale <= 0:
            raise UserError(f"method.rescale is {rescale}; use more than 0.")
        self.rescale, self.mlp = rescale, nn.ModuleList()
        self.table = nn.Parameter(torch.empty(length, width).normal_(std=0.02 / rescale))

    def vectors(self) -> Tensor:
        """Return the vectors, `[P, E]`."""
        vectors = self.table * self.rescale
        if not self.mlp:
            return vectors
        pairs = zip(self.mlp, vectors.chunk(len(self.mlp)), strict=True)
        return torch.cat([part + network(part) for network, part in pairs])

    def begin(self, vectors: Tensor) -> None:
        """Start from these vectors, `[P, E]`."""
        with torch.no_grad():
            self.table.copy_(vectors / self.rescale)


# The prompt encoder of P-tuning: pseudo tokens become input vectors, Ĥ = MLP(BiLSTM(Emb)).

Kind = Literal["lstm", "mlp", "mlp3", "plain"]
Width = Literal["half", "full"]


class PromptEncoder(nn.Module):
    """Learned vectors `[m, E]`, reparameterized by a small network that is dropped after training.

    Args:
        length: m, in vectors.
        width: E, the width of word embeddings.
        kind: `lstm` is Emb(m, E), a bidirectional LSTM of two layers, and Linear, ReLU, Linear to
            E; `mlp` omits the LSTM; `mlp3` has a map more, as PEFT's; `plain` is the table alone.
        hidden: of the LSTM, in each direction: `half` is E/2 (P-tuning on LAMA), `full` is E (its
            few-shot code).
    """

    def __init__(self, length: int, width: int, kind: Kind = "lstm", hidden: Width = "half"):
        super().__init__()
        self.table = nn.Parameter(torch.randn(length, width))  # as nn.Embedding starts
        size = width // 2 if hidden == "half" else width
        self.lstm: nn.LSTM | None = None
        self.mlp: nn.Module | None = None
        if kind == "lstm":
            self.lstm = nn.LSTM(width, size, num_layers=2, bidirectional=True, batch_first=True)
        if kind != "plain":
            inner = 2 * size if kind == "lstm" else width
            more = [nn.Linear(width, width), nn.ReLU()] if kind == "mlp3" else []
            maps = [nn.Linear(inner, width), nn.ReLU(), *more, nn.Linear(width, width)]
            self.mlp = nn.Sequential(*maps)
        self.folded: Tensor | None = None

    def forward(self) -> Tensor:
        """Return the vectors `[m, E]`."""
        if self.folded is not None:
            return self.folded
        vectors: Tensor = self.table
        if self.lstm is not None:
            # cuDNN sums an LSTM in an open order, and in TF32 on recent GPUs
            is_cuda = self.table.is_cuda
            with torch.backends.cudnn.flags(enabled=False) if is_cuda else nullcontext():
                vectors = self.lstm(self.table[None])[0][0]
        return vectors if self.mlp is None else self.mlp(vectors)

    def begin(self, vectors: Tensor) -> None:
        """Start from these vectors `[m, E]`; allowed for `plain` alone."""
        assert self.mlp is None, "a reparameterized prompt cannot start from given vectors"
        with torch.no_grad():
            self.table.copy_(vectors)

    def fold(self, vectors: Tensor) -> None:
        """Use finished vectors instead of the network."""
        self.folded = vectors


# Deep prefix: learned keys and values for chosen layers, as a table or through an MLP.
#
# GLM's released code learns hidden states instead, and the layers' own maps turn them into keys and
# values: half as many numbers, and not all keys and values are possible.

Reparameterization = Literal["embedding", "mlp"]
PrefixKind = Literal["kv", "hidden"]
Project = Callable[[Tensor], Tensor]
"""From hidden states `[P, n, H]` to keys and values `[P, 2 n, heads, d]`."""
Stack = Literal["encoder", "decoder", "cross"]
"""A stack of attentions: the self-attention of an encoder-decoder's halves, or its cross-attention.

A model with one stack has `encoder` alone, also if it is left-to-right.
"""


def places(stacks: Mapping[Stack, int], layers: Sequence[int] | None) -> list[tuple[Stack, int]]:
    """Return (stack, layer from 0) of each attention with a prefix, in the order of its slices.

    `stacks` gives the number of layers of each. The interval `layers`, counted from 1, applies to
    each stack.

    Raises:
        UserError: a stack does not have the interval.
    """
    pairs: list[tuple[Stack, int]] = []
    for stack, count in stacks.items():
        interval = (1, count) if layers is None else layers
        if layers is not None and (len(layers) != 2 or not 1 <= layers[0] <= layers[1] <= count):
            whose = f", the layers of the {stack}" if len(stacks) > 1 else ""
            raise UserError(
                f"method.layers is {list(layers)}; give [first,last] with "
                f"1 <= first <= last <= {count}{whose}."
            )
        pairs += [(stack, layer) for layer in range(interval[0] - 1, interval[1])]
    return pairs


class DeepPrefix(nn.Module):
    """Learned keys and values `[P, 2 n, heads, d]` for n layers, keys at even slices.

    Args:
        length: P, in vectors; 0 gives an empty prefix.
        layers: n, the number of layers with a prefix.
        heads, head_size: of the backbone; H = heads x d.
        kind: `embedding` learns the values themselves; `mlp` learns a `[P, H]` table and
            Linear(H, m), tanh, Linear(m, 2nH), dropped after training.
        hidden: m.
        project: turns hidden states into keys and values. The hidden states are learned then, from
            N(0, 1), the scale of normed states. None learns keys and values.
        states: the hidden size of the backbone, for `project`.
        frozen: the number of first vectors that are not learned; for a table of keys and values.

    Raises:
        UserError: `frozen` is more than `length`, or vectors are computed.
    """

    def __init__(
        self,
        length: int,
        layers: int,
        heads: int,
        head_size: int,
        kind: Reparameterization = "embedding",
        hidden: int = 512,
        project: Project | None = None,
        states: int = 0,
        frozen: int = 0,
    ):
        super().__init__()
        if not 0 <= frozen <= length:
            raise UserError(f"method.frozen_vectors is {frozen}; use 0 to method.length={length}.")
        if frozen and (kind == "mlp" or project is not None):
            raise UserError(
                f"method.frozen_vectors={frozen}: vectors that are computed cannot be frozen. Type "
                "method.reparameterization=embedding method.prefix_kind=kv."
            )
        self.form = (length, 2 * layers, heads, head_size)
        self.project = project
        width = states if project else heads * head_size
        outputs = layers * width if project else 2 * layers * width
        rows = outputs if kind == "embedding" else width
        std = 1.0 if project and kind == "embedding" else 0.02
        values = torch.empty(length, rows).normal_(std=std)
        self.table = nn.Parameter(values[frozen:].clone())
        self.frozen: Tensor | None
        self.register_buffer("frozen", values[:frozen].clone() if frozen else None)
        self.mlp: nn.Module | None = None
        if kind == "mlp":
            down, up = nn.Linear(width, hidden), nn.Linear(hidden, outputs)
            self.mlp = nn.Sequential(drawn(down), nn.Tanh(), drawn(up))
        self.folded: Tensor | None = None

    def forward(self) -> Tensor:
        """Return the prefix `[P, 2 n, heads, d]`."""
        if self.folded is not None:
            return self.folded
        values = self.table if self.frozen is None else torch.cat([self.frozen, self.table])
        values = values if self.mlp is None else self.mlp(values)
        if self.project is not None:
            return self.project(values.unflatten(-1, (self.form[1] // 2, -1)))
        return values.view(self.form)

    def begin(self, values: Tensor) -> None:
        """Start from keys and values `[P, 2 n, heads, d]`; allowed for a table of them alone."""
        assert self.mlp is None and self.project is None
        frozen, table = self.divided(values.flatten(1))
        with torch.no_grad():
            self.table.copy_(table)
            if self.frozen is not None:
                self.frozen.copy_(frozen)

    def divided(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return the vectors that are not learned, and those that are."""
        count = len(values) - len(self.table)
        return values[:count], values[count:]

    def fold(self, values: Tensor) -> None:
        """Use finished values instead of the table and MLP."""
        self.folded = values.view(self.form)


# How linear maps of prompts and heads start.


def drawn(linear: nn.Linear, std: float = 0.02) -> nn.Linear:
    """Draw the weight of a linear map from N(0, std²), set its bias to 0, and return the map."""
    nn.init.normal_(linear.weight, std=std)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
    return linear


# Parametrized hypercomplex multiplication: a linear map of few parameters.
#
# Zhang et al. 2021, Eq. 4: W = sum_i A_i ⊗ B_i for n matrices A_i `[n, n]` and B_i `[in/n, out/n]`,
# n³ + in · out / n parameters instead of in · out. IDPG uses it for prompts, Compacter for
# adapters. W is never built: with x as X `[n, in/n]`, x W is sum_i A_iᵀ X B_i.

_STD = 0.05  # the start of every tensor in IDPG's released code


def mixing(order: int) -> nn.Parameter:
    """Return matrices A `[n, n, n]`, which several maps may share."""
    return nn.Parameter(torch.empty(order, order, order).normal_(std=_STD))


class PHM(nn.Module):
    """The map x -> x sum_i A_i ⊗ B_i (+ b), `[..., in] -> [..., out]`.

    Args:
        inputs, outputs: in and out.
        order: n, a divisor of both; 1 is an ordinary linear map times a number.
        rank: of every B_i = s_i t_i, s `[n, in/n, r]`, t `[n, r, out/n]`; None is full.
        bias: whether b `[out]` is added.
        shared: A of another map, to learn one for both.

    Raises:
        UserError: `order` does not divide both sizes.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        order: int,
        *,
        rank: int | None = None,
        bias: bool = False,
        shared: nn.Parameter | None = None,
    ):
        super().__init__()
        if order < 1 or inputs % order or outputs % order:
            fits = [n for n in range(1, 65) if inputs % n == 0 and outputs % n == 0]
            raise UserError(
                f"method.order is {order}, but a map from {inputs} to {outputs} needs a divisor of "
                f"both; use one of {', '.join(map(str, fits))}."
            )
        self.mixing = mixing(order) if shared is None else shared
        pair = (inputs // order, outputs // order)
        sizes = [pair] if rank is None else [(pair[0], rank), (rank, pair[1])]
        self.factors = nn.ParameterList(torch.empty(order, *s).normal_(std=_STD) for s in sizes)
        self.bias = nn.Parameter(torch.empty(outputs).normal_(std=_STD)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Return `[..., out]`; the smaller side is mixed first, to keep intermediates small."""
        blocks, order = self.blocks(), len(self.mixing)
        cut = x.reshape(*x.shape[:-1], order, blocks.shape[1])
        if blocks.shape[1] < blocks.shape[2]:
            mixed = torch.einsum("ipr,...pq->...irq", self.mixing, cut)
            product = torch.einsum("...irq,iqs->...rs", mixed, blocks)
        else:
            mapped = torch.einsum("...pq,iqs->...ips", cut, blocks)
            product = torch.einsum("ipr,...ips->...rs", self.mixing, mapped)
        flat: Tensor = product.flatten(-2)
        return flat if self.bias is None else flat + self.bias

    def blocks(self) -> Tensor:
        """Return B, `[n, in/n, out/n]`."""
        blocks: Tensor = self.factors[0]
        return blocks @ self.factors[1] if len(self.factors) == 2 else blocks

    def weight(self) -> Tensor:
        """Return W `[in, out]`, for comparison."""
        pairs = zip(self.mixing, self.blocks(), strict=True)
        return torch.stack([torch.kron(a, b) for a, b in pairs]).sum(dim=0)
