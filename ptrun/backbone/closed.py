"""A family with closed layers: the model's own forward pass computes them, and ptrun enters none.

    ptrun backbone.path=FOLDER method=prompt_tuning     # Bloom, Falcon, Mamba, Qwen3-Next, ...

This is what `ptrun.backbone.probe` cannot trace: layers without attention, or with attention in
code of their own. Input vectors stand before the word embeddings, LoRA and adapters change the
outputs of modules, and keys and values of a prefix cannot enter. Rows are padded on the right,
where tokens before see nothing of it. Texts are written for rows of one length.
"""

import inspect
import json
import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig

from ptrun.backbone.base import BackboneInput, DecoderInput, Shape
from ptrun.backbone.family import Stock, as_words
from ptrun.backbone.injection import Injection, Paths, hook
from ptrun.backbone.packing import Packing
from ptrun.backbone.probe import KINDS, LENGTHS, Probed, described, library_class, tags
from ptrun.errors import UserError

_LOG = logging.getLogger(__name__)

_LENGTHS = (*LENGTHS, "seq_length", "max_seq_len", "context_length")
_UNBOUNDED = 2**20  # tokens, of a model that names no longest input
_FEED_FORWARD = ("mlp", "ffn", "feed_forward", "moe", "ff_layer")
_MAPS = (
    *("q_proj v_proj", "query_key_value", "Wqkv", "c_attn", "qkv_proj", "query value"),
    *("in_proj_qkvz", "in_proj_qkv", "in_proj", "receptance key value", "q v"),
    "linear_x linear_y",
)
"""Last names of the maps that read the input of attention, or of what stands in its place."""


@dataclass(frozen=True)
class Closed(Probed):
    """One architecture whose layers stay closed.

    Args:
        sites: for each layer, the path of the module whose output a kind of site edits.

    >>> from transformers import MambaConfig
    >>> from ptrun.backbone.closed import closed
    >>> config = MambaConfig(vocab_size=8, hidden_size=16, num_hidden_layers=2)
    >>> closed(config.to_dict(), "has no attention").attention_maps
    ('in_proj',)
    """

    sites: tuple[Mapping[str, str], ...] = ()

    def library_config(self, content: Mapping[str, Any]) -> Any:
        """Return the configuration object, without dropout: its draws are not by row."""
        config = super().library_config(content)
        for key in _noise(config):
            setattr(config, key, 0.0)
        return config

    def shape(self, config: Any) -> Shape:
        """Return the sizes that config.json states."""
        hidden, embedding, positions = self.widths
        heads = getattr(config, "num_attention_heads", 0) or 0
        width = getattr(config, "head_dim", None) or hidden // (heads or 1)
        return Shape(hidden, embedding, len(self.sites), heads, width, positions, dropout=0.0)

    def prepare(self, model: Any, injection: Injection) -> None:
        """Connect the sites of edits."""
        for index, (layer, paths) in enumerate(zip(self.layers(model), self.sites, strict=True)):
            for kind, path in paths.items():
                hook(layer.get_submodule(path), injection, "text", (kind, index))

    def linear_maps(self, model: Any) -> dict[str, Any]:
        """Return the linear maps that the model calls as modules; Mamba hands some to a kernel."""
        maps = {}
        for path, module in super().linear_maps(model).items():
            parent, _, name = path.rpartition(".")
            kind: Any = type(model.get_submodule(parent))
            if name not in _handed(kind):
                maps[path] = module
        return maps

    def hidden(
        self, model: Any, inputs: BackboneInput | DecoderInput, packing: Packing | None
    ) -> Tensor:
        """Return the last hidden states `[B, T, H]`."""
        if inputs.prefixes:
            raise UserError(f"a prefix cannot enter the layers of {self.library}.")
        grids = {"use_cache": False} if self.left_to_right else {}
        types = getattr(inputs, "types", None)
        if types is not None and getattr(model.config, "type_vocab_size", 0) > 1:
            grids["token_type_ids"] = types
        vectors = inputs.embeddings
        with nullcontext(inputs.ids) if vectors is None else as_words(model, vectors) as ids:
            states = self.body(model)(input_ids=ids, attention_mask=inputs.mask.long(), **grids)[0]
        return states  # type: ignore[no-any-return]


def closed(config: Mapping[str, Any], why: str) -> Closed:
    """Return the family of a causal model or an encoder, with why prefixes cannot enter it."""
    return _read(json.dumps(config, sort_keys=True, default=str), why)


@lru_cache(maxsize=32)
def _read(text: str, why: str) -> Closed:
    content = json.loads(text)
    kind, name, library = described(content)
    if name == "seq2seq":
        raise UserError(f"{why}.")
    config = AutoConfig.for_model(**content)
    config._attn_implementation = "eager"
    with torch.device("meta"):
        model: Any = library_class(library)(config)
    body, config = model.base_model, model.config.get_text_config()
    lists = {n: m for n, m in body.named_modules() if isinstance(m, nn.ModuleList)}
    count = config.num_hidden_layers
    path = next((n for n, m in lists.items() if len(m) == count), None)
    table = model.get_input_embeddings()
    layers = body.get_submodule(path) if path else ()
    maps = dict.fromkeys(name for layer in layers for name in _maps(layer))
    if body is model or not maps or not isinstance(table, nn.Embedding):
        raise UserError(f"{why}, and its layers are no list with linear maps.")
    if noise := {key: getattr(config, key) for key in _noise(config)}:
        shown = ", ".join(f"{key}={value}" for key, value in noise.items())
        _LOG.warning("%s runs its own forward pass, without its dropout (%s)", library, shown)
    sites = tuple(_sites(layer, config.hidden_size) for layer in layers)
    inner = {id(module) for module in body.modules()}
    prefix = model.base_model_prefix
    lengths = (getattr(config, key, None) for key in _LENGTHS)
    longest = next((int(n) for n in lengths if n and n > 0), _UNBOUNDED)
    rows = [m for m in body.modules() if isinstance(m, nn.Embedding) and m is not table]
    after = [m.padding_idx + 1 for m in rows if m.padding_idx is not None]  # where positions begin
    longest -= max(after, default=0)
    return Closed(
        library,
        Paths(f"{prefix}.{path}", "", "", ""),
        name=name,
        attention="eager",
        left_to_right=name == "causal",
        fills_masks=name == "masked",
        pooler=name == "masked",
        attention_maps=tuple(maps),
        stock=Stock(KINDS[name][1], tags=tags(kind, model), takes_past=False),
        bars_prefixes=why,
        closed=True,
        edited=frozenset.intersection(*(frozenset(paths) for paths in sites)),
        probed=True,
        fused=any(
            p.dim() > 2
            for module in body.modules()
            if not isinstance(module, nn.Conv1d)
            for p in module.parameters(recurse=False)
        ),
        heads=tuple(n for n, module in model.named_children() if id(module) not in inner),
        body_path=prefix,
        widths=(config.hidden_size, table.embedding_dim, longest),
        sites=sites,
    )


@cache
def _handed(kind: type) -> set[str]:
    """Return the names of the parts of a module whose weights its code reads."""
    return set(re.findall(r"self\.(\w+)\.weight(?:,| @)", inspect.getsource(kind)))


def _noise(config: Any) -> list[str]:
    """Return the keys of a configuration that draw random numbers in training."""
    numbers = {key: value for key, value in vars(config).items() if type(value) is float and value}
    return [key for key in numbers if "drop" in key or "jitter" in key]


def _maps(layer: nn.Module) -> Sequence[str]:
    """Return the last names of the maps of a layer that LoRA changes by default."""
    names = [n for n, module in layer.named_modules() if isinstance(module, nn.Linear)]
    last = dict.fromkeys(name.rpartition(".")[2] for name in names)
    return next((m.split() for m in _MAPS if {*m.split()} <= last.keys()), [*last])


def _sites(layer: nn.Module, hidden: int) -> dict[str, str]:
    """Return the paths of the modules that can be edited in a layer, by kind of site.

    Each is the last map of the one part of its kind, before the residual sum.
    """
    paths = {"layer": ""}
    parts = {n: m for n, m in layer.named_children() if any(p.dim() > 1 for p in m.parameters())}
    grown = {n for n in parts if any(word in n for word in _FEED_FORWARD)}
    for kind, names in (("attention", parts.keys() - grown), ("ffn", grown)):
        if len(names) == 1:
            (name,) = names
            maps = [n for n, m in parts[name].named_modules() if isinstance(m, nn.Linear)]
            last = [n for n in maps if parts[name].get_submodule(n).out_features == hidden][-1:]
            fused = any(p.dim() > 2 for p in parts[name].parameters()) and kind == "ffn"
            paths[kind] = ".".join([name, *([] if fused else last)]).rstrip(".")
    return paths
