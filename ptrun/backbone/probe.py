"""A family by probe: a model type without a table entry, read from its tree and one traced pass.

    ptrun backbone.path=FOLDER        # Gemma, Phi, OLMo, Granite, ModernBERT, XLM-R, BART, ...

The model is built without weights. One pass on the meta device shows which modules compute
attention through transformers' interface, with how many heads, which linear maps follow each, and
where positions enter. `ptrun.backbone.proof` checks the outcome with the weights.
"""

import inspect
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers import CONFIG_MAPPING, AttentionInterface, AutoConfig, LlamaForCausalLM
from transformers.masking_utils import AttentionMaskInterface
from transformers.models.auto import modeling_auto as auto
from transformers.pytorch_utils import Conv1D

from ptrun.backbone.attention import Sight, sight_of
from ptrun.backbone.base import BackboneInput, DecoderInput, Shape
from ptrun.backbone.family import Family, Stock, SwitchFields, read
from ptrun.backbone.injection import Injection, KeyedDropout, Paths, Reader, wire
from ptrun.backbone.packing import EVERY, LOOK_BACK, Packing
from ptrun.errors import UserError

_NAME = "ptrun_trace"
KINDS = {
    "seq2seq": (
        auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
        ("AutoModelForSeq2SeqLM", "SEQ_2_SEQ_LM"),
    ),
    "masked": (
        auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
        ("AutoModelForMaskedLM", "FEATURE_EXTRACTION"),
    ),
    "causal": (auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, ("AutoModelForCausalLM", "CAUSAL_LM")),
}
_FIELDS = {
    "dropout": "hidden_dropout_prob hidden_dropout resid_pdrop embd_pdrop dropout dropout_rate "
    "embedding_dropout mlp_dropout resid_dropout residual_dropout",
    "attention_dropout": "attention_probs_dropout_prob attention_dropout attn_pdrop",
    "layer_norm_eps": "layer_norm_eps layer_norm_epsilon rms_norm_eps norm_eps",
}
LENGTHS = ("max_position_embeddings", "n_positions", "max_sequence_length")
_GROWING = ("dynamic", "longrope")  # scalings of rotary positions by the longest row of a batch
_HYBRID = ("num_kv_shared_layers", "attention_chunk_size")
_KNOWN = {"scaling", "dropout", "position_ids", "use_cache", "sliding_window", "softcap", "s_aux"}
_KNOWN |= {"deterministic", "output_attentions", "output_hidden_states", "output_router_logits"}
_TEXT, _ANSWER = 6, 4  # tokens of the traced pass


@dataclass(frozen=True)
class Stack:
    """One stack of layers, with paths from the root of the model.

    Args:
        root: the module that reads the tokens of the stack.
        paths: the parts of a layer.
        layers: the number of layers.
        keys: key heads, width of keys, and width of values of each layer.
        table: the table of learned positions, where no argument takes positions.
    """

    root: str
    paths: Paths
    layers: int
    keys: tuple[tuple[int, int, int], ...]
    table: str | None


@dataclass(frozen=True)
class Probed(Family):
    """One architecture, as it was traced.

    Args:
        stacks: the only stack, or encoder and decoder.
        heads: the modules between the body and the logits.
        body_path: the module whose output the head reads.
        first: the position of the first token; RoBERTa's follow the padding index.
        loose: probability of dropouts by a function, which draws for a whole batch; 0: none.
        widths: H, E, and the longest input in tokens.

    >>> from transformers import PhiConfig
    >>> from ptrun.backbone.probe import probed
    >>> sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    >>> probed(PhiConfig(vocab_size=8, intermediate_size=8, **sizes).to_dict()).paths.layers
    'model.layers'
    """

    stacks: tuple[Stack, ...] = ()
    heads: tuple[str, ...] = ()
    body_path: str = ""
    first: int = 0
    loose: float = 0.0
    widths: tuple[int, int, int] = (0, 0, 0)

    @property
    def model_class(self) -> Any:
        """The class that holds the body and the output head."""
        return library_class(self.library)

    def shape(self, config: Any) -> Shape:
        """Return the sizes that the trace showed."""
        (hidden, embedding, positions), text = self.widths, self.stacks[0]
        heads, width, _ = text.keys[0]
        dropout = next((float(getattr(config, name)) for name in self.fields.dropout), 0.0)
        layers = self.stacks[1].layers if self.has_decoder else 0
        sizes = hidden, embedding, text.layers, heads, width, positions
        return Shape(*sizes, dropout=dropout, decoder_layers=layers)

    def prepare(self, model: Any, injection: Injection) -> None:
        """Connect layers, positions, and dropouts that are calls of a function."""
        readers: tuple[Reader, Reader] = ("text", "decoder")
        for stack, reader in zip(self.stacks, readers, strict=False):
            wire(model, stack.paths, injection, reader)
            if stack.table:
                _place(self, model.get_submodule(stack.table), injection, reader)
            if self.loose:
                _drop_by_key(model, stack, reader, self.loose, injection)

    def layers(self, model: Any) -> Any:
        """Return the layers that read the text."""
        return model.get_submodule(self.paths.layers)

    def readers(self, model: Any) -> dict[Reader, Any]:
        """Return the module that reads the text, and the decoder if there is one."""
        names: tuple[Reader, Reader] = ("text", "decoder")
        owners = (stack.paths.layers.rpartition(".")[0] for stack in self.stacks)
        return dict(zip(names, map(model.get_submodule, owners), strict=False))

    @property
    def takes_positions(self) -> bool:
        """Whether an argument takes positions."""
        return not self.stacks[-1].table

    def places(self, inputs: BackboneInput | DecoderInput) -> Tensor:
        """Return position ids `[B, T]`; RoBERTa's follow the padding index."""
        return super().places(inputs) + self.first

    def hidden(self, model: Any, inputs: BackboneInput, packing: Packing | None) -> Tensor:
        """Return the last hidden states: `[B, S, H]` with a decoder input, else of the text."""
        text = self._run(model, 0, inputs, packing, types=inputs.types)
        if not self.has_decoder or inputs.decoder is None:
            return text
        seen = {"encoder_hidden_states": text, "encoder_attention_mask": inputs.mask}
        return self._run(model, 1, inputs.decoder, None, use_cache=False, **seen)

    def _run(
        self,
        model: Any,
        index: int,
        inputs: BackboneInput | DecoderInput,
        packing: Packing | None,
        types: Tensor | None = None,
        **more: Any,
    ) -> Tensor:
        """Return the last hidden states of one stack."""
        stack, typed = self.stacks[index], getattr(model.config, "type_vocab_size", 0) > 1
        grids = {"token_type_ids": types} if types is not None and typed else {}
        if not stack.table:
            grids["position_ids"] = self.places(inputs)
        if self.left_to_right:
            more["use_cache"] = False
        root = model.get_submodule(stack.root)
        tokens = read(inputs, packing, **grids)  # type: ignore[arg-type]
        hidden: Tensor = root(**tokens, attention_mask=inputs.mask, **more)[0]
        return hidden

    def logits(self, model: Any, hidden: Tensor) -> Tensor:
        """Return `[K, V]` as the model computes them: with its scales, caps and biases.

        Its own code runs, with a body that returns these states.
        """
        body = model.get_submodule(self.body_path)
        token = torch.zeros(1, 1, dtype=torch.long, device=hidden.device)
        decoder = {"decoder_input_ids": token} if self.has_decoder else {}
        output = _States([hidden[None]])
        body.forward = lambda *_, **__: output
        try:
            logits: Tensor = model(input_ids=token, **decoder).logits[0]
        finally:
            del body.forward
        return logits

    def counted(self, model: Any) -> list[nn.Parameter]:
        """Return the parameters of the model; a pooler is ptrun's own."""
        return [p for name, p in model.named_parameters() if not name.startswith("pooler.")]

    def of_head(self, tensor: str) -> bool:
        """Return whether a tensor belongs to the output head, by its name."""
        return tensor.startswith(tuple(f"{head}." for head in self.heads))


class _States(tuple[Tensor, ...]):
    """The output of a body: its last hidden states, and None for all else."""

    def __getattr__(self, name: str) -> Tensor | None:
        return self[0] if name == "last_hidden_state" else None


def _place(family: Family, table: Any, injection: Injection, reader: Reader) -> None:
    """Give a table of positions those of the current pass, whatever its caller asks for."""
    usual, learned = table.forward, isinstance(table, nn.Embedding)
    offset = getattr(table, "offset", 0) if learned else table.padding_idx + 1

    def look_up(*arguments: Any, **options: Any) -> Tensor:
        half = injection.read_by(reader)
        if half is None:
            return usual(*arguments, **options)  # type: ignore[no-any-return]
        places = injection.places
        positions = (family.places(half) if places is None else places) + offset
        packed = positions if injection.packing is None else injection.packing.pack(positions)
        rows = table.weight if learned else table.weights
        return nn.functional.embedding(packed, rows)  # type: ignore[arg-type]

    table.forward = look_up


def _drop_by_key(model: Any, stack: Stack, reader: Reader, p: float, injection: Injection) -> None:
    """Put dropouts by key where the code of BART, OPT and others calls a function."""
    start = 900_000 + 10_000 * (reader == "decoder")

    def dropped(dropout: KeyedDropout, out: Tensor) -> Tensor:
        return dropout(injection.grid(reader, out)).view(out.shape)  # type: ignore[no-any-return]

    layers: Any = model.get_submodule(stack.paths.layers)
    sites = iter(range(start, start + 10_000))
    if hasattr(layers[0], "dropout"):  # these drop their embeddings too
        entry = KeyedDropout(p, next(sites), injection)
        layers[0].register_forward_pre_hook(lambda _, inputs: (entry(inputs[0]), *inputs[1:]))
    for module in model.get_submodule(stack.root).modules():
        drawn_elsewhere = {"attention_dropout"}
        if "ptrun_link" in vars(module):
            drawn_elsewhere.add("dropout")
        names = [name for name in vars(module) if name.endswith(("dropout", "layerdrop"))]
        for name in set(names) - drawn_elsewhere:
            setattr(module, name, 0.0)
    for layer in layers:
        for path in filter(None, (stack.paths.attended, stack.paths.crossed, stack.paths.grown)):
            dropout = KeyedDropout(p, next(sites), injection)
            layer.get_submodule(path).register_forward_hook(
                lambda _m, _i, out, dropout=dropout: dropped(dropout, out)
            )


@dataclass(frozen=True)
class _Call:
    """One attention in the traced pass; `after` counts the modules that ended before it."""

    module: nn.Module
    sight: Any
    keys: tuple[int, int, int]
    crosses: bool
    more: frozenset[str]
    after: int


_calls: list[_Call] = []
_ended: list[tuple[nn.Module, int]] = []  # modules in the order in which they end, and their width


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, **more: Any
) -> tuple[Tensor, None]:
    numbers = frozenset(k for k, number in more.items() if isinstance(number, Tensor | float | int))
    form = key.shape[1], key.shape[3], value.shape[3]
    crosses = query.shape[2] != key.shape[2]
    _calls.append(_Call(module, mask, form, crosses, numbers, len(_ended)))
    return query.new_zeros(query.shape[0], query.shape[2], query.shape[1], value.shape[3]), None


AttentionInterface.register(_NAME, _attend)
AttentionMaskInterface.register(_NAME, sight_of)


class _Drops(TorchFunctionMode):
    """Collects the probabilities of `torch.nn.functional.dropout`, those of modules too."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[float] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is nn.functional.dropout:
            self.found.append((kwargs or {}).get("p", 0.5))
        return func(*args, **(kwargs or {}))


def probed(config: Mapping[str, Any]) -> Probed:
    """Return the family of a model type without an entry.

    Raises:
        UserError: why prefixes cannot enter its layers, without a full stop.
    """
    return _traced(json.dumps(config, sort_keys=True, default=str))


def described(content: dict[str, Any]) -> tuple[str, str, str]:
    """Return model type, kind, and the class that predicts words; refuse a type without one."""
    kind = str(content.get("model_type"))
    if content.get("vision_config"):
        raise UserError(f"model type {kind!r} has vision_config: it reads images.")
    named = " ".join(content.get("architectures") or [])
    name = next((n for n, (classes, _) in KINDS.items() if classes.get(kind, "-") in named), None)
    name = name or next((n for n, (classes, _) in KINDS.items() if kind in classes), None)
    library = KINDS[name][0][kind] if name else _headless(kind, content)
    if library is None:
        raise UserError(
            f"model type {kind!r} is none that transformers {transformers.__version__} can use to "
            "predict words. Choose a causal model, an encoder, or an encoder-decoder."
        )
    return kind, name or "causal", library


def _headless(kind: str, content: dict[str, Any]) -> str | None:
    """Return the class of a text part whose head only the whole model has, for `library_class`."""
    if content.get("text_of") not in auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES:
        return None
    if of_head := [key for key in content if "logit" in key and content[key]]:
        raise UserError(f"model type {kind!r} has {of_head[0]}, which only its whole model applies")
    config_class = CONFIG_MAPPING[kind]
    module = import_module(config_class.__module__.replace(".configuration_", ".modeling_"))
    classes = [n for n, c in vars(module).items() if getattr(c, "config_class", 0) is config_class]
    bodies = (
        name for name in classes if name.endswith("TextModel") and hasattr(transformers, name)
    )
    return next((f"{name}WithHead" for name in bodies), None)


@cache
def library_class(name: str) -> Any:
    """Return a class of transformers; `WithHead` after its name adds a linear output head."""
    body: Any = getattr(transformers, name.removesuffix("WithHead"))
    if not name.endswith("WithHead"):
        return body

    def init(model: Any, config: Any) -> None:
        super(LlamaForCausalLM, model).__init__(config)
        model.model = body(config)
        model.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        model.post_init()

    content = {"__init__": init, "config_class": body.config_class, "__module__": __name__}
    return type(name, (LlamaForCausalLM,), content)


@lru_cache(maxsize=32)
def _traced(text: str) -> Probed:
    content = json.loads(text)
    kind, name, library = described(content)
    if hybrid := [key for key in _HYBRID if content.get(key)]:
        raise UserError(f"model type {kind!r} has {hybrid[0]}")
    config = AutoConfig.for_model(**content)
    config._attn_implementation, config._experts_implementation = _NAME, "batched_mm"
    for key in [key for key in vars(config) if key.endswith("layerdrop")]:
        setattr(config, key, 0.0)
    try:
        with torch.device("meta"):
            model: Any = library_class(library)(config)
    except KeyError as error:  # a table of attention classes, without ours
        raise UserError(_FOREIGN.format(kind)) from error
    ids = torch.zeros(1, _TEXT, dtype=torch.long, device="meta")
    decoder = {"decoder_input_ids": ids[:, :_ANSWER]} if name == "seq2seq" else {}
    _calls.clear()
    _ended.clear()

    def note(module: nn.Module, _: object, output: Any) -> None:
        states = output[0] if isinstance(output, tuple) else output
        sized = isinstance(states, Tensor) and states.dim() > 0
        _ended.append((module, states.shape[-1] if sized else 0))

    hooks = [module.register_forward_hook(note) for module in model.modules()]
    try:
        with _Drops() as drops, torch.no_grad():
            model.train()(input_ids=ids, attention_mask=torch.ones_like(ids), **decoder)
    except Exception as error:  # a model's own code raises what it likes
        raise UserError(_FOREIGN.format(kind)) from error
    finally:
        for hook in hooks:
            hook.remove()
    of_modules = Counter(module.p for module, _ in _ended if isinstance(module, nn.Dropout))
    loose = max(Counter(drops.found) - of_modules, default=0.0)
    return _Reading(kind, name, model, list(_calls), list(_ended)).family(loose)


_FOREIGN = "model type {!r} does not compute attention through transformers' interface"


@dataclass(frozen=True)
class _Reading:
    """What a traced pass says of a model."""

    kind: str
    name: str
    model: Any
    calls: list[_Call]
    ended: list[tuple[nn.Module, int]]

    def family(self, loose: float) -> Probed:
        """Return the family."""
        model, config = self.model, self.model.config.get_text_config()
        called = [id(call.module) for call in self.calls]
        more = {name for call in self.calls for name in call.more} - _KNOWN
        if not called or not all(isinstance(call.sight, Sight) for call in self.calls):
            raise UserError(_FOREIGN.format(self.kind))
        if len(set(called)) < len(called):
            raise UserError(f"model type {self.kind!r} calls one layer several times")
        if more:
            raise UserError(
                f"model type {self.kind!r} passes {', '.join(sorted(more))} to its attention, "
                "which ptrun does not compute"
            )
        if model.base_model is model:
            raise UserError(f"model type {self.kind!r} has no body apart from its head")
        causal = self.name == "causal"
        halves: list[tuple[Any, list[_Call]]] = []
        if self.name == "seq2seq":
            for half in (model.get_encoder(), model.get_decoder()):
                modules = set(half.modules())
                halves.append((half, [call for call in self.calls if call.module in modules]))
        else:
            halves.append((model.base_model, self.calls))
        stacks = tuple(self._stack(root, calls) for root, calls in halves)
        forms = {form for stack in stacks for form in stack.keys}
        even = len(forms) == 1 and all(key == value for _, key, value in forms)
        body = {id(module) for module in model.base_model.modules()}
        heads = [n for n, module in model.named_children() if id(module) not in body]
        table = model.get_input_embeddings().weight
        layer = model.get_submodule(stacks[0].paths.layers)[0]
        hidden = next(width for module, width in self.ended if module is layer)
        tables = self._tables() if self._table(model.base_model) is None else []
        start = next((m.padding_idx + 1 for m in tables if m.padding_idx is not None), 0)
        last = [module for module, _ in self.ended if id(module) in body][-1]
        path = next(name for name, module in model.named_modules() if module is last)
        fields = {
            option: tuple(key for key in names.split() if hasattr(config, key))
            for option, names in _FIELDS.items()
        }
        return Probed(
            type(model).__name__,
            stacks[0].paths,
            name=self.name,
            fields=SwitchFields(**fields),
            packed=None if self.name == "seq2seq" else LOOK_BACK if causal else EVERY,
            left_to_right=causal,
            has_decoder=self.name == "seq2seq",
            fills_masks=self.name == "masked",
            pooler=self.name == "masked",
            attention_maps=self._maps(self.calls[0]),
            stock=Stock(
                KINDS[self.name][1],
                tags=tags(self.kind, self.model),
                takes_past="past_key_values"
                in inspect.signature(model.base_model.forward).parameters,
            ),
            bars_prefixes="" if even else "keys and values of different widths",
            probed=True,
            fused=any(p.dim() > 2 for p in model.base_model.parameters()),
            stacks=stacks,
            heads=tuple(heads),
            body_path=path,
            first=start,
            loose=loose,
            widths=(hidden, table.shape[1], self._length(config) - start),
        )

    def _path(self, module: nn.Module) -> tuple[str, int, str]:
        """Return where a part of a layer is: the path of the layers, its index, and its own."""
        name = next(name for name, part in self.model.named_modules() if part is module)
        match = re.fullmatch(r"(.+?)\.(\d+)\.(.+)", name)
        if not match:
            raise UserError(f"model type {self.kind!r} has {name}, which is in no list of layers")
        return match[1], int(match[2]), match[3]

    def _stack(self, root: Any, calls: Sequence[_Call]) -> Stack:
        """Return the parts of one stack, which are the same in each layer."""
        inner = [call for call in calls if not call.crosses]
        places = [self._path(call.module) for call in inner]
        layers, _, part = places[0]
        count = len(self.model.get_submodule(layers))
        if places != [(layers, index, part) for index in range(count)]:
            raise UserError(
                f"model type {self.kind!r} computes attention in {len(places)} of {count} layers"
            )
        name = next(name for name, module in self.model.named_modules() if module is root)
        cross = next((call for call in calls if call.crosses), None)
        crosses = (self._path(cross.module)[2], self._after(cross)) if cross else (None, None)
        paths = Paths(layers, part, self._after(inner[0]), self._grown(layers), *crosses)
        return Stack(name, paths, count, tuple(call.keys for call in inner), self._table(root))

    def _after(self, call: _Call) -> str:
        """Return the linear map that reads the output of an attention, from its layer."""
        output = next(m for m, _ in self.ended[call.after :] if isinstance(m, nn.Linear | Conv1D))
        return self._path(output)[2]

    def _grown(self, layers: str) -> str:
        """Return the last linear map of the feed-forward, or the block of experts."""
        every: list[str] = []
        for layer in self.model.get_submodule(layers):
            inner = set(map(id, layer.modules()))
            ended = [module for module, _ in self.ended if id(module) in inner]
            fused = any(p.dim() > 2 for p in layer.parameters())
            parts = [m for m in layer.children() if any(p.dim() > 1 for p in m.parameters())]
            kinds = tuple(map(type, parts)) if fused else (nn.Linear, Conv1D)
            every.append(self._path([m for m in ended if isinstance(m, kinds)][-1])[2])
        return every[0] if len(set(every)) == 1 else every[0].split(".")[0]

    def _maps(self, call: _Call) -> tuple[str, ...]:
        """Return the last names of the maps to queries and values."""
        inner = set(map(id, call.module.modules()))
        ended = [m for m, _ in self.ended[: call.after] if id(m) in inner]
        maps = [self._path(m)[2].split(".")[-1] for m in ended if isinstance(m, nn.Linear | Conv1D)]
        return (maps[0],) if len(maps) == 1 else (maps[0], maps[-1])

    def _tables(self) -> list[Any]:
        """Return the tables of positions that were read: learned ones, and M2M100's of sines."""
        words, longest = self.model.get_input_embeddings(), self._longest(self.model.config)
        tables: list[tuple[Any, Any]] = [(m, getattr(m, "weights", None)) for m, _ in self.ended]
        tables += [(m, m.weight) for m, _ in self.ended if isinstance(m, nn.Embedding)]
        sizes = [
            (m, len(rows)) for m, rows in tables if isinstance(rows, Tensor) and m is not words
        ]
        return [m for m, size in sizes if longest <= size <= longest + 8]

    def _table(self, root: Any) -> str | None:
        """Return the table of positions of a stack; None if an argument takes positions."""
        if "position_ids" in inspect.signature(root.forward).parameters:
            return None
        inner = set(map(id, root.modules()))
        table = next((m for m in self._tables() if id(m) in inner), None)
        if table is None:
            raise UserError(f"model type {self.kind!r} takes no positions")
        names: dict[int, str] = {id(m): name for name, m in self.model.named_modules()}
        return names[id(table)]

    def _longest(self, config: Any) -> int:
        text = config.get_text_config()
        lengths = [int(getattr(text, name)) for name in LENGTHS if getattr(text, name, None)]
        if not lengths:
            raise UserError(f"model type {self.kind!r} names no longest input in its config.json")
        return lengths[0]

    def _length(self, config: Any) -> int:
        """Return the longest input; a scaling that grows with it must not come into play."""
        longest = self._longest(config)
        ropes = getattr(config, "rope_parameters", None) or {}
        for rope in (ropes, *(scaling for scaling in ropes.values() if isinstance(scaling, dict))):
            if rope.get("rope_type") in _GROWING:
                original = rope.get("original_max_position_embeddings")
                longest = min(longest, int(original or longest))
        return longest


def tags(kind: str, model: Any) -> str | None:
    """Return the linear map of the stock class that tags words; None if it has more layers."""
    name = auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES.get(kind)
    if name is None:
        return None
    with torch.device("meta"):
        tagger = getattr(transformers, name)(model.config)
    rest = {n: m for n, m in tagger.named_children() if m is not tagger.base_model}
    learned = [n for n, m in rest.items() if any(True for _ in m.parameters())]
    alone = len(learned) == 1 and isinstance(rest[learned[0]], nn.Linear)
    return learned[0] if alone else None
