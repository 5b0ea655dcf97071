"""What a model family is, and the classes of transformers that hold its models."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ptrun.backbone import tokenizers
from ptrun.backbone.base import BackboneInput, DecoderInput, Shape
from ptrun.backbone.injection import Injection, Paths, Reader, wire
from ptrun.backbone.packing import BLOCK, Packing, Reach, packing_of
from ptrun.backbone.tokenizers import Kind
from ptrun.errors import UserError, explained, of_device


@dataclass(frozen=True)
class SwitchFields:
    """The fields of a model's configuration that each option sets; none if it has no such field.

    Args:
        dropout: dropout of embeddings and of the outputs of attention and feed-forward.
        attention_dropout: dropout of attention weights.
        layer_norm_eps: the epsilon of all norms.
    """

    dropout: tuple[str, ...] = ()
    attention_dropout: tuple[str, ...] = ()
    layer_norm_eps: tuple[str, ...] = ()


NO_FIELDS = SwitchFields()
ENCODER = SwitchFields(
    ("hidden_dropout_prob",), ("attention_probs_dropout_prob",), ("layer_norm_eps",)
)
GPT2 = SwitchFields(("resid_pdrop", "embd_pdrop"), ("attn_pdrop",), ("layer_norm_epsilon",))
LLAMA = SwitchFields((), ("attention_dropout",), ("rms_norm_eps",))
T5 = SwitchFields(("dropout_rate",), (), ("layer_norm_epsilon",))  # one dropout, attention's too


@dataclass(frozen=True)
class Stock:
    """The classes of transformers for a model type, which `ptrun export` fills.

    Args:
        words: the class that predicts words, and PEFT's kind of task; None if there is none.
        tags: name of the linear map of the class that tags words; None: none tags with one map.
        dense: path of the layer and tanh before the labels of a text; None: the head differs.
        labels: path of the linear map that gives the labels of a text.
        pooler: the value of `readout.pooler` that trains such a dense layer.
        differs: how the class that labels a text differs.
        takes_past: whether it takes keys and values of a prefix.
        ia3: the modules that IA3 changes, where PEFT has no list of them.
    """

    words: tuple[str, str] | None = None
    tags: str | None = "classifier"
    dense: str | None = None
    labels: str = "classifier"
    pooler: str = "trainable"
    differs: str = "the stock classifier has no bias, which this run's head has"
    takes_past: bool = True
    ia3: Mapping[str, list[str]] | None = None


NO_STOCK = Stock()


@dataclass(frozen=True)
class Family(ABC):
    """How models of one `model_type` are loaded, connected and run; families are its subclasses.

    What other packages must know about a model, they read from its fields, never from its name.

    Args:
        library: name of the class in `package` that holds the body and the output head.
        paths: where the layers are.
        head: attribute of the output head; some checkpoints have `other_head` instead.
        name: name of the family.
        has_pooler: whether pre-training trains a pooler.
        pooler: whether the model can have a pooler.
        attention: the library's attention to use where ours cannot be registered.
        fields: what the configuration calls its dropouts and its epsilon.
        packed: which tokens of its row a token sees, if the model can read packed tokens.
        left_to_right: whether a token sees only itself and those before it.
        has_decoder: whether a second stack reads what has been written.
        has_blank: whether the answer is written in a blank of the text.
        fills_masks: whether words are predicted at several masks of a text.
        writes_words: whether the output head predicts words; ELECTRA's detects replaced tokens.
        relative: whether positions are only relative, so that a prefix moves none.
        overflows: whether hidden states may overflow in fp16.
        shares_layers: whether all layers have the same weights.
        embeds_whole: whether `embed_whole` of a backbone works.
        attention_maps: last names of the query and value projections, as LoRA changes them.
        position_maps: last names of maps that also read relative positions.
        stock: what transformers and PEFT have for it.
        bars_prefixes: why keys and values of a prefix cannot enter each layer; empty: they can.
        closed: whether its own forward pass computes all layers, and ptrun enters none.
        edited: the sites of each layer where hidden states can be edited.
        fused: whether experts are one tensor, which is no linear map to quantize.
        probed: whether it was read from a traced pass, so that loaded weights must prove it.
    """

    library: str
    paths: Paths
    head: str = "lm_head"
    name: str = ""
    package: str = "transformers"
    other_head: str | None = None
    has_pooler: bool = False
    pooler: bool = False
    attention: str | None = None
    fields: SwitchFields = NO_FIELDS
    packed: Reach | None = None
    left_to_right: bool = False
    has_decoder: bool = False
    has_blank: bool = False
    fills_masks: bool = False
    writes_words: bool = True
    relative: bool = False
    overflows: bool = False
    shares_layers: bool = False
    embeds_whole: bool = False
    attention_maps: tuple[str, ...] = ("q_proj", "v_proj")
    position_maps: frozenset[str] = frozenset()
    stock: Stock = NO_STOCK
    bars_prefixes: str = ""
    closed: bool = False
    edited: frozenset[str] = frozenset({"layer", "attention", "ffn"})
    probed: bool = False
    fused: bool = False

    @property
    def model_class(self) -> Any:
        """The class that holds the body and the output head."""
        return getattr(import_module(self.package), self.library)

    def tokenizer(self, folder: Path, model_type: str, kind: Kind | None, *, words: bool) -> Any:
        """Return the tokenizer of a folder, as `tokenizers.load`."""
        return tokenizers.load(folder, model_type, kind, words=words)

    def library_config(self, content: Mapping[str, Any]) -> Any:
        """Return the configuration object for the content of a config.json."""
        rest = {key: value for key, value in content.items() if key != "model_type"}
        return self.model_class.config_class(**rest)

    def overrides(self, name: str, **options: float | None) -> dict[str, float]:
        """Return the fields to override in a model's configuration, with their values.

        Args:
            name: the backbone, for messages.
            options: those of `SwitchFields`; None keeps the checkpoint's.

        Raises:
            UserError: the model has no such field, a dropout is not in [0, 1), or an epsilon is
                not positive.
        """
        overridden: dict[str, float] = {}
        for option, value in options.items():
            if value is None:
                continue
            if not (names := getattr(self.fields, option)):
                allowed = [f"backbone.{name}" for name in options if getattr(self.fields, name)]
                raise UserError(
                    f"backbone.{option}={value}: {name} has no such option. Allowed: "
                    f"{', '.join(allowed)}."
                )
            if option == "layer_norm_eps" and not 0 < value < float("inf"):
                raise UserError(f"backbone.layer_norm_eps is {value}; use more than 0.")
            if option != "layer_norm_eps" and not 0 <= value < 1:
                raise UserError(f"backbone.{option} is {value}; use 0 or more, and less than 1.")
            overridden |= dict.fromkeys(names, value)
        return overridden

    @property
    def encoder(self) -> bool:
        """Whether one stack reads the text in both directions, and nothing else."""
        return not (self.left_to_right or self.has_decoder or self.has_blank)

    @property
    def writes_apart(self) -> bool:
        """Whether the answer is passed as decoder input, apart from the text."""
        return self.has_decoder or self.has_blank

    @property
    def rereads(self) -> bool:
        """Whether rows that write together read all of their tokens at each step."""
        return self.has_blank or self.closed

    @abstractmethod
    def shape(self, config: Any) -> Shape:
        """Return the sizes from a transformers configuration."""

    def prepare(self, model: Any, injection: Injection) -> None:
        """Connect the layers of a model to the current pass."""
        wire(self.body(model), self.paths, injection)

    def body(self, model: Any) -> Any:
        """Return the model without output head and pooler."""
        return model.base_model

    def layers(self, model: Any) -> Any:
        """Return the layers that read the text."""
        return self.body(model).get_submodule(self.paths.layers)

    def readers(self, model: Any) -> dict[Reader, Any]:
        """Return the module that reads the text, and the decoder if there is one."""
        return {"text": self.body(model)}

    @property
    def takes_positions(self) -> bool:
        """Whether an argument of the text's reader takes positions."""
        return not self.relative

    def places(self, inputs: BackboneInput | DecoderInput) -> Tensor:
        """Return position ids `[B, T]`, from 0; a decoder's are never moved."""
        return read_order(inputs.mask, getattr(inputs, "shift", None))

    def packing(self, inputs: BackboneInput) -> Packing | None:
        """Return the packing of an input; None if the model reads padded rows."""
        if self.packed is None:
            return None
        return packing_of(inputs.mask, inputs.lengths, self.packed, BLOCK)

    @abstractmethod
    def hidden(self, model: Any, inputs: BackboneInput, packing: Packing | None) -> Tensor:
        """Return the last hidden states: `[B, S, H]` with a decoder input, else `[B, T, H]`.

        With a packing, those of its tokens `[1, N, H]`, or of the requested ones alone.
        """

    def logits(self, model: Any, hidden: Tensor) -> Tensor:
        """Return the output of the head, `[K, H] -> [K, V]`."""
        logits: Tensor = getattr(model, self.head)(hidden)
        return logits

    def of_head(self, tensor: str) -> bool:
        """Return whether a tensor belongs to the output head, by its name."""
        return tensor.startswith(tuple(f"{head}." for head in (self.head, self.other_head) if head))

    def linear_maps(self, model: Any) -> dict[str, Any]:
        """Return the linear maps of the layers by their path; GPT-2's are transposed (`Conv1D`).

        Below a layer of PEFT it is the path of that layer.
        """
        from transformers.pytorch_utils import Conv1D

        body, output = self.body(model), model.get_output_embeddings()
        inner = {id(module) for module in body.modules() if module is not output}
        return {
            name.removesuffix(".base_layer"): module
            for name, module in model.named_modules()
            if isinstance(module, nn.Linear | Conv1D) and id(module) in inner
            if "lora_" not in name
        }

    def counted(self, model: Any) -> list[nn.Parameter]:
        """Return the parameters that make up the published size; tied ones count once."""
        return list(model.parameters())


def raw_words(model: Any, inputs: BackboneInput | DecoderInput) -> Tensor:
    """Return raw word embeddings `[B, T, H]`, from the input or looked up."""
    if inputs.embeddings is not None:
        return inputs.embeddings
    words: Tensor = model.get_input_embeddings()(inputs.ids)
    return words


_WORD = 5  # any token that is not special


@contextmanager
def as_words(model: Any, vectors: Tensor) -> Iterator[Tensor]:
    """Let a model read vectors `[B, T, E]` once as word embeddings; yield the tokens to give it.

    What its code does to embeddings is done to them too.
    """
    left = [vectors]
    table = model.get_input_embeddings()
    hook = table.register_forward_hook(lambda *_: left.pop() if left else None)
    try:
        yield torch.full_like(vectors[..., 0], _WORD, dtype=torch.long)
    finally:
        hook.remove()


def read(inputs: BackboneInput, packing: Packing | None, **grids: Tensor | None) -> dict[str, Any]:
    """Return the words and other `grids [B, T]` that a model reads, packed if it reads so."""
    tokens = {"input_ids": inputs.ids, "inputs_embeds": inputs.embeddings, **grids}
    return tokens if packing is None else {k: packing.pack(grid) for k, grid in tokens.items()}


def read_order(mask: Tensor, shift: Tensor | None) -> Tensor:
    """Return position ids `[B, T]`: they count real tokens, on any padding side, plus the shift."""
    positions = (mask.long().cumsum(dim=1) - 1).clamp(min=0)
    return positions if shift is None else positions + shift[:, None]


@contextmanager
def reading(name: str, place: object) -> Iterator[None]:
    """Refuse, by its name, a config.json or weights that a library cannot read as a model."""
    try:
        yield
    except (UserError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        if of_device(error) or (isinstance(error, OSError) and explained(error)):
            raise
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
        raise UserError(
            f"backbone={name}: {place} cannot be read as a model ({reason})."
            "\nconfig.json or the weights are damaged, or not of one model; copy them again."
        ) from error
