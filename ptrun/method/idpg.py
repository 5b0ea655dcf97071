"""IDPG: a small generator makes prompt vectors for each instance, the backbone frozen.

Wu et al. 2022. The generator reads M(x), the [CLS] state of a frozen pass over the bare text. The
input prompt joins the raw word embeddings; positions count over text and prompt. With `deep`
(M-IDPG) a prompt is added to the hidden states at the prompt's positions after every layer except
the last, which the read-out could not see. `generator=none` is the tables' additive P-tuning v2,
with `deep=false` their prompt tuning.

As in the released code, the [CLS] states that the generators of layers read have no dropout. On
models with segments a prompt has the segment of the token before it. Departs from the code: the
frozen pass has no dropout in training, so M(x) is computed once for each example.
`instance_dropout=true` draws it anew in every step, as released.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from ptrun.backbone.base import BackboneInput, Edit, Site
from ptrun.backbone.dropout import drop
from ptrun.errors import UserError
from ptrun.method.base import Method
from ptrun.method.instance import FrozenPass, MeanOfWords
from ptrun.method.instance import glove as glove_file
from ptrun.prompt import PHM, drawn
from ptrun.readout.base import Batch, Features
from ptrun.readout.head import check_dropout

# Generates prompts from instances: G(z) = W2 drop(gelu(W1 z + b1)), plus a bias for each site.
#
# IDPG, Wu et al. 2022, §3. A site is a place where prompt vectors are added: the input, or after a
# layer. The paper's versions S, M and L differ in what sites share. In its appendix A.5 the prompt
# P of the input also becomes LN(P), z + LN'(P), or both: LN(z + LN'(P)).

Kind = Literal["phm", "dense", "none"]
Sharing = Literal["S", "M", "L"]
"""Sites share everything (S), all but their biases (M), or nothing (L)."""

Drop = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class GeneratorForm:
    """The architecture of a generator.

    Args:
        kind: `phm` or `dense` maps; `none` has biases only, so that all instances have the same
            prompt.
        shared_mixing: whether both maps of `phm` share A, as in the paper's text and its count for
            S-IDPG-PHM; the released code has two.
        layer_norm: normalize the input's prompt vectors, by a norm that is learned.
        residual: add the instance to each of the input's prompt vectors, which a learned norm
            normalizes first. Instances are then as wide as these vectors.

    >>> from ptrun.method.idpg import Generator, GeneratorForm
    >>> Generator(32, 5, 32, GeneratorForm("dense", hidden=8)).down.weight.shape  # [m, in]
    torch.Size([8, 32])
    """

    kind: Kind = "phm"
    hidden: int = 16
    order: int = 16
    shared_mixing: bool = False
    layer_norm: bool = False
    residual: bool = False

    def __post_init__(self) -> None:
        if self.hidden < 1:
            raise UserError(f"method.hidden is {self.hidden}; use 1 or more.")
        if self.kind == "none" and (self.layer_norm or self.residual):
            key = "layer_norm" if self.layer_norm else "residual"
            raise UserError(
                f"method.{key}=true: method.generator=none generates no prompt; leave it out, or "
                "use method.generator=phm or dense."
            )


class Generator(nn.Module):
    """Maps instances `[B, in]` to vectors `[B, t, width]`, without the site's bias.

    >>> import torch
    >>> from ptrun.method.idpg import Generator, GeneratorForm
    >>> generator = Generator(32, 5, 16, GeneratorForm(order=4))
    >>> generator(torch.ones(2, 32), lambda hidden: hidden).shape
    torch.Size([2, 5, 16])
    """

    def __init__(self, inputs: int, length: int, width: int, form: GeneratorForm):
        super().__init__()
        self.shape = (length, width)
        self.down: nn.Module
        self.up: nn.Module
        if form.kind == "phm":
            self.down = PHM(inputs, form.hidden, form.order, bias=True)
            both = self.down.mixing if form.shared_mixing else None
            self.up = PHM(form.hidden, length * width, form.order, shared=both)
        else:
            self.down = drawn(nn.Linear(inputs, form.hidden))
            self.up = drawn(nn.Linear(form.hidden, length * width, bias=False))

    def forward(self, instance: Tensor, drop: Drop) -> Tensor:
        """Return the vectors; `drop` applies dropout to the hidden units."""
        vectors: Tensor = self.up(drop(functional.gelu(self.down(instance))))
        return vectors.view(-1, *self.shape)


class Generators(nn.Module):
    """The prompts of all sites: the output of each site's generator, plus its bias.

    Sites of different widths share nothing (word embeddings may be narrower than hidden states).

    Args:
        widths: of each site's vectors.
        inputs: width of an instance.
        length: t, in vectors, of each site.

    Raises:
        UserError: there is a residual, and instances are not as wide as the input's vectors.

    >>> import torch
    >>> from ptrun.method.idpg import GeneratorForm, Generators
    >>> generators = Generators([32, 32], 32, 5, "M", GeneratorForm(order=4))
    >>> generators(1, torch.ones(2, 32), lambda hidden: hidden).shape
    torch.Size([2, 5, 32])
    """

    def __init__(
        self, widths: Sequence[int], inputs: int, length: int, sharing: Sharing, form: GeneratorForm
    ):
        super().__init__()
        sites = list(range(len(widths)))
        by_width = [widths.index(width) for width in widths]  # the first site that is as wide
        makes = sites if sharing == "L" else by_width
        begins = by_width if sharing == "S" else sites
        self._makes, self._begins = [str(s) for s in makes], [str(s) for s in begins]
        makers = dict.fromkeys(makes) if form.kind != "none" else ()
        self.generators = nn.ModuleDict(
            {str(s): Generator(inputs, length, widths[s], form) for s in makers}
        )
        bound = 0.5
        if form.kind == "dense" and len(widths) == 1:  # S-IDPG-DNN's is that of its last map
            bound = 0.0
        self.biases = nn.ParameterDict(
            {str(s): torch.empty(length, widths[s]).uniform_(-bound, bound) for s in set(begins)}
        )
        if form.residual and inputs != widths[0]:
            raise UserError(
                f"method.residual=true adds an instance of {inputs} numbers to prompt vectors of "
                f"{widths[0]}; leave it out."
            )
        self.norm = nn.LayerNorm(widths[0]) if form.layer_norm else None
        self.added_norm = nn.LayerNorm(widths[0]) if form.residual else None

    @property
    def reads_instances(self) -> bool:
        """Whether prompts depend on the instance."""
        return bool(self.generators)

    def forward(self, site: int, instance: Tensor, drop: Drop) -> Tensor:
        """Return a site's prompts `[B, t, width]` for instances `[B, in]`."""
        bias: Tensor = self.biases[self._begins[site]]
        if not self.reads_instances:
            return bias.expand(len(instance), -1, -1)
        vectors: Tensor = self.generators[self._makes[site]](instance, drop)
        prompts = vectors + bias
        if site == 0 and self.added_norm is not None:  # the input's: residual and norm, as released
            prompts = instance[:, None] + self.added_norm(prompts)
        return self.norm(prompts) if site == 0 and self.norm is not None else prompts


# Inserts prompt vectors into rows of tokens: after [CLS], or beside the separators.
#
# IDPG, appendix A.5. Letters: B rows, T tokens, G inserted vectors.

Place = Literal[0, 1, 2, 3, 4]
"""0 after [CLS]; 1 before the first separator; 2 after it and those that follow directly; 3 before
the last separator; 4 after the end, between two added separators."""


class Insertion:
    """The places of G vectors in rows of T tokens, one place for each row.

    Args:
        at: `[B]` the number of tokens before the vectors.
        tokens: T.
        added: G.

    >>> import torch
    >>> from ptrun.method.idpg import Insertion
    >>> insertion = Insertion(torch.tensor([1]), tokens=4, added=2)
    >>> insertion.weave(torch.zeros(1, 4), torch.ones(1, 2))
    tensor([[0., 1., 1., 0., 0., 0.]])
    """

    def __init__(self, at: Tensor, tokens: int, added: int):
        self.at, self.added = at, added
        column = torch.arange(tokens + added, device=at.device)
        start, end = at[:, None], at[:, None] + added
        behind = torch.where(column < end, column - start + tokens, column - added)
        self.order = torch.where(column < start, column, behind)
        """`[B, T + G]` the index of the token at each position, or T + the index of the vector."""

    def weave(self, tokens: Tensor, vectors: Tensor) -> Tensor:
        """Insert `[B, G, ...]` into `[B, T, ...]`: `[B, T + G, ...]`."""
        both = torch.cat([tokens, vectors.to(tokens.dtype)], dim=1)
        rows = torch.arange(len(both), device=both.device)[:, None]
        return both[rows, self.order]

    def moved(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return the new columns `[K]` of tokens, from their rows and columns `[K]`."""
        return columns + self.added * (columns >= self.at[rows])


def place(position: Place, mask: Tensor, separators: Tensor) -> Tensor:
    """Return the number of tokens before each row's prompt, `[B]`.

    Args:
        position: as in `Place`; a row without separators has its prompt at the end.
        mask: `[B, T]`, True at real tokens.
        separators: `[B, T]`, True at separators.
    """
    length = mask.sum(dim=1)
    if position == 0:
        return torch.ones_like(length)
    if position == 4:
        return length
    separator = _first(separators, length)
    if position == 1:
        return separator
    if position == 2:
        column = torch.arange(mask.shape[1], device=mask.device)
        return _first((column >= separator[:, None]) & ~separators, length)
    last = mask.shape[1] - 1 - separators.flip(1).long().argmax(dim=1)
    return torch.where(separators.any(dim=1), last, length)


def _first(flags: Tensor, default: Tensor) -> Tensor:
    """Return the column of the first True of each row, `[B, T] -> [B]`."""
    return torch.where(flags.any(dim=1), flags.long().argmax(dim=1), default)


Source = Literal["previous", "first"]

_SITE = 1_100_000  # first dropout site, above every site of a backbone


class IDPG(Method):
    """Generated prompts `[B, t, H]` at the input and after layers, and a read-out.

    Args:
        length: t, in vectors; 0 is the bare backbone with a head.
        sharing: what layers share: S everything, M all but a bias a layer, L nothing.
        deep: add prompts after layers too (M-IDPG), not only at the input (S-IDPG).
        generator: `phm`, `dense`, or `none` for biases only.
        hidden: m, the generator's width.
        order: n of `phm`; it must divide the widths of its maps.
        shared_mixing: for `phm`, share one A between both maps of a generator.
        layer_norm, residual: of the input's prompt (`ptrun.method.idpg.GeneratorForm`).
        source: input of the layers' generators: the [CLS] state there (`previous`), or M(x).
        glove: a local file of word vectors. M(x) is then their average over the text's words.
            Null uses the frozen pass.
        instance_dropout: use dropout in the frozen pass in training.
        position: where the prompt is inserted, `ptrun.method.idpg.Place`.
        dropout: of M(x) and of hidden units, in training.

    >>> from ptrun.testing import read
    >>> method, batch, output = read("method=idpg", "method.order=4")
    >>> method.prompt(0, method.instance(batch), lambda hidden: hidden).shape  # [B, t, E]
    torch.Size([2, 5, 128])
    """

    needs: ClassVar[Mapping[str, str]] = {"encoder": "an encoder"}
    may_differ = ("dropout",)

    def __init__(
        self,
        *run: Any,
        length: int = 5,
        sharing: Sharing = "M",
        deep: bool = True,
        generator: Kind = "phm",
        hidden: int = 16,
        order: int = 16,
        shared_mixing: bool = False,
        layer_norm: bool = False,
        residual: bool = False,
        source: Source = "previous",
        glove: str | None = None,
        instance_dropout: bool = False,
        position: Place = 0,
        dropout: float = 0.1,
    ):
        super().__init__(*run)
        if length < 0:
            raise UserError(f"method.length is {length}; use 0 (no prompt) or more.")
        if position not in get_args(Place):
            raise UserError(f"method.position is {position}; use 0, 1, 2, 3 or 4.")
        check_dropout("method", dropout)
        if glove is not None and deep and source == "previous":
            raise UserError(
                "method.glove: a generator cannot read both word vectors and [CLS] states; "
                "type method.source=first."
            )
        self.length, self.source, self.dropout = length, source, dropout
        self.position: Place = position
        self.room()
        shape = self.backbone.shape
        self.layers = shape.layers - 1 if deep else 0
        widths = [shape.embedding_size, *[shape.hidden_size] * self.layers]
        form = GeneratorForm(generator, hidden, order, shared_mixing, layer_norm, residual)
        self.encoder: FrozenPass | MeanOfWords = (
            MeanOfWords(self.backbone, glove)
            if glove is not None
            else FrozenPass(self.backbone, dropout=instance_dropout)
        )
        self.prompt = Generators(widths, self.encoder.width, length, sharing, form)

    @classmethod
    def unused(cls, node: Mapping[str, Any]) -> set[str]:
        """Return the keys of maps that the generator lacks, and those of deep prompts without."""
        kind, deep = node.get("generator", "phm"), node.get("deep", True)
        unused = {
            **dict.fromkeys(("order", "shared_mixing"), kind != "phm"),
            **dict.fromkeys(("hidden", "dropout", "glove", "instance_dropout"), kind == "none"),
            "source": kind == "none" or not deep,
            "sharing": not deep,
        }
        return {key for key, is_unused in unused.items() if is_unused}

    @classmethod
    def fingerprint_config(cls, node: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the configuration with a digest in place of the file of word vectors."""
        file = node.get("glove")
        return {**node, "glove": glove_file(file).digest()} if file else node

    @property
    def prompt_positions(self) -> int:
        """Positions of the prompt's vectors, and of two separators around it at `position` 4."""
        return self.length + 2 * (self.position == 4)

    def inputs(self, batch: Batch) -> BackboneInput:
        """Return text and prompt as embeddings `[B, T + G, E]`, and an edit for each layer."""
        text = super().inputs(batch)
        if self.length == 0:
            return text
        instance = self.instance(batch)
        separators = batch.mask  # without an effect at position 0: a tokenizer may have none
        if self.position > 0:
            separators = batch.mask & (batch.ids == self._separator)
        at = place(self.position, batch.mask, separators)
        put = Insertion(at, batch.ids.shape[1], self.prompt_positions)
        types = batch.types
        if types is not None:  # a prompt has the segment of the token before it
            before = types.gather(1, put.at[:, None] - 1)
            types = put.weave(types, before.expand(-1, put.added))
        prompt = self._prompt(batch, 0, self._dropped(batch, 0, instance))  # `[B, G, E]`
        if self.position == 4:
            ends = self.backbone.embed(torch.full_like(batch.ids[:, :1], self._separator))
            prompt = torch.cat([ends, prompt.to(ends.dtype), ends], dim=1)
        prompted = replace(
            text,
            ids=None,
            embeddings=put.weave(self.backbone.embed(batch.ids), prompt),
            mask=put.weave(batch.mask, batch.mask.new_ones(len(batch), put.added)),
            lengths=[length + put.added for length in batch.lengths],
            types=types,
            edits=self._edits(batch, put, instance),
        )
        moved = put.moved(batch.reads.rows, batch.reads.columns)
        return self.readout.request(prompted, replace(batch.reads, columns=moved))

    def unprepared(self, features: Sequence[Features], *, training: bool) -> Sequence[Features]:
        """Return the examples whose M(x) is not computed yet."""
        frozen = self._frozen_pass
        return frozen.unprepared(features, training=training) if frozen else ()

    def prepare(self, batch: Batch) -> None:
        """Compute M(x) and keep it."""
        assert self._frozen_pass is not None, "nothing is unprepared"
        self._frozen_pass.prepare(batch)

    def instance(self, batch: Batch) -> Tensor:
        """Return M(x), `[B, H]` or as wide as the word vectors."""
        if not self.prompt.reads_instances:
            return torch.zeros(len(batch), 1, device=batch.ids.device)
        return self.encoder(batch)

    @property
    def _frozen_pass(self) -> FrozenPass | None:
        used = self.length > 0 and self.prompt.reads_instances
        return self.encoder if used and isinstance(self.encoder, FrozenPass) else None

    def _edits(self, batch: Batch, put: Insertion, instance: Tensor) -> dict[Site, Edit]:
        start = put.at + (self.position == 4)
        columns = start[:, None] + torch.arange(self.length, device=start.device)
        rows = torch.arange(len(batch), device=columns.device)[:, None]

        def edit(hidden: Tensor, layer: int) -> Tensor:
            if self.source == "previous":
                source = hidden[:, 0].float()  # without dropout, as in the released code
            else:
                source = self._dropped(batch, 2 * layer, instance)
            prompt = self._prompt(batch, layer, source).to(hidden.dtype)
            return hidden.index_put((rows, columns), hidden[rows, columns] + prompt)

        layers = range(1, self.layers + 1)
        return {("layer", layer - 1): partial(edit, layer=layer) for layer in layers}

    def _prompt(self, batch: Batch, layer: int, source: Tensor) -> Tensor:
        prompt: Tensor = self.prompt(layer, source, partial(self._dropped, batch, 2 * layer + 1))
        return prompt

    def _dropped(self, batch: Batch, site: int, values: Tensor) -> Tensor:
        return drop(values, batch.keys, _SITE + site, self.dropout)

    @property
    def _separator(self) -> int:
        return int(self.backbone.tokenizer().sep_token_id)
