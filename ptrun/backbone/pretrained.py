"""A pretrained backbone of any family: its source, its weights and its forward pass.

    ptrun backbone=bert_large_cased        ptrun backbone.path=FOLDER

The `model_type` in config.json decides the family. Soft prompts enter as raw word embeddings,
prefixes through our attention, and edits through hooks.
"""

import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from ptrun.backbone import files, tokenizers, weights
from ptrun.backbone.base import BackboneInput, BackboneOutput, DecoderInput, Positions, Shape, Site
from ptrun.backbone.causal import GPT2_PATHS
from ptrun.backbone.family import reading
from ptrun.backbone.files import fingerprint
from ptrun.backbone.injection import Division, Injection, Reader, install
from ptrun.backbone.packing import requested
from ptrun.backbone.registry import family_of
from ptrun.backbone.tensor_parallel import Cut, divide
from ptrun.backbone.weights import Stored, Tuned, dequantization, stored
from ptrun.config.schema import Quantization
from ptrun.errors import UserError
from ptrun.hub import repository

_LOG = logging.getLogger(__name__)

_TURNED = ("mbart", "plbart")  # their decoder starts with the last of the labels
_MULTILINGUAL = (*_TURNED, "m2m_100", "nllb-moe")
_LANGUAGE = re.compile(r"_*[a-z]{2,}(_[A-Za-z]+)?_*")
_T5 = ("t5", "mt5")
_SIZE = re.compile(r"hidden|layer|head|d_model|d_kv|d_ff|n_embd|intermediate|embedding_size")


class PretrainedBackbone:
    """A pretrained model with three injection points; it has no weights before `load()`.

    Args:
        name: name in results.
        hub: hub id.
        revision: pinned commit or tag of the hub model.
        shipped: name of a model inside the package.
        path: local folder; it overrides `hub` and `shipped`.
        config: sizes of a hub model, to count and check it without a network; null fetches its
            config.json.
        tokenizer: kind of tokenizer; null detects it from the folder, as with `path`.
        dtype: `bf16` or `fp32`, the precision that `hardware.precision=auto` takes on a GPU.
        fp16: whether the hidden states of a T5 fit in fp16 as they are, as CPM-2's do.
        parameters: published size, checked at load; null to skip.
        lr: suitable learning rates for `prompt` and `full`; method files read them from the
            configuration.
        source: instructions for a model that is not on the hub.
        dropout: dropout of the whole model in training; null is the checkpoint's.
        attention_dropout: dropout of attention weights; null is the checkpoint's.
        layer_norm_eps: the epsilon of all norms; null is the checkpoint's.
        families: what makes the family of a model type that ptrun does not know, by model type.

    >>> from ptrun.backbone.pretrained import PretrainedBackbone
    >>> backbone = PretrainedBackbone(name="pocket_bert", shipped="pocket_bert")
    >>> backbone.shape.layers, backbone.shape.hidden_size
    (4, 128)
    """

    def __init__(
        self,
        *,
        name: str,
        hub: str | None = None,
        revision: str | None = None,
        shipped: str | None = None,
        path: str | None = None,
        config: dict[str, Any] | None = None,
        tokenizer: tokenizers.Kind | None = None,
        dtype: Literal["fp32", "bf16"] = "bf16",
        fp16: bool = False,
        parameters: int | None = None,
        lr: dict[str, float] | None = None,
        source: str | None = None,
        dropout: float | None = None,
        attention_dropout: float | None = None,
        layer_norm_eps: float | None = None,
        families: Mapping[str, Any] | None = None,
    ):
        self.name = Path(path).resolve().name if path else name
        if hub and config is None and not path:
            self.name = hub.rpartition("/")[2]
        self.hub, self.revision, self.dtype, self.source = hub, revision, dtype, source
        self.fits_fp16 = fp16
        self.folder = files.locate(shipped, path)
        self.repository = repository.model(hub, revision) if hub and not self.folder else None
        self.parameters = parameters if path is None else None
        self.tokenizer_kind = tokenizer if path is None else None
        if self.folder:
            self.config = files.read_config(self.folder)
        elif config is not None:
            self.config = files.text_of(name, config)
        elif self.repository:
            from ptrun.hub import download

            self.config = files.read_config(download.config_folder(self.repository))
        else:
            raise UserError(f"backbone={self.name}: {source}")
        self.quantized_by = files.quantized_by(self.config)
        self.config.pop("quantization_config", None)  # the weights are plain once they are read
        self.architecture = family_of(self.name, self.config, families or {})
        self.family = self.architecture.name
        self.turns_labels = self.config["model_type"] in _TURNED
        self.reads_languages = self.config["model_type"] in _MULTILINGUAL
        self._overrides = self.architecture.overrides(
            self.name,
            dropout=dropout,
            attention_dropout=attention_dropout,
            layer_norm_eps=layer_norm_eps,
        )
        self._epsilon = "" if layer_norm_eps is None else f"~eps{layer_norm_eps:g}"
        self.has_head, self._replayed = True, False
        self.kept: dict[bytes, Tensor] = {}  # cached outputs of frozen passes, until weights move
        self.division: Division | None = None  # of a tensor-parallel group; set before `load`
        self.cuts: dict[int, Cut] = {}  # by the id of the parameter
        self.quantization: Quantization = "none"  # of frozen linear maps; set by `quantize`
        self.tuned: Tuned | None = None  # the run that tuned it; set before `load`
        self.pooler_seed: int | None = None  # draws a pooler the files lack; set before `load`
        self._tokenizers: dict[tuple[bool, tuple[str, str] | None], Any] = {}

    @cached_property
    def model(self) -> Any:
        """Body, output head and, for encoders, pooler; on the meta device until `load()`."""
        with reading(self.name, self.folder or self.hub), torch.device("meta"):
            model = self.architecture.model_class(self._library_config(self.config))
            if self.architecture.pooler:
                model.pooler = nn.Linear(self.shape.hidden_size, self.shape.hidden_size)
        if self._has_own_output():
            model.lm_head.weight = nn.Parameter(torch.empty_like(model.lm_head.weight))
        self._replace_maps(model)
        return self._prepare(model)

    @cached_property
    def shape(self) -> Shape:
        """The sizes, from the configuration alone."""
        with reading(self.name, self.folder or self.hub):
            return self.architecture.shape(self._library_config(self.config))

    @cached_property
    def has_pooler(self) -> bool:
        """Whether the checkpoint has a pooler from pre-training."""
        if self.folder is None or not self.architecture.has_pooler:
            return self.architecture.has_pooler
        return bool(stored_pooler(self.folder))

    @property
    def commit(self) -> str | None:
        """The commit of the hub revision, once it is fetched."""
        return self.repository.commit if self.repository else None

    @property
    def weights(self) -> str:
        """An identifier of the weights; after a `+` that of the run that tuned them."""
        return f"{self._untuned}+{self.tuned.digest}" if self.tuned else self._untuned

    @cached_property
    def _untuned(self) -> str:
        """The fingerprint of local files, or hub id and revision; another epsilon is part of it."""
        local = None if self.repository else self.folder  # its module says why not the commit
        name = fingerprint(local) if local else f"{self.hub}@{self.revision}"
        return name + self._epsilon

    def tokenizer(self, *, words: bool = False, languages: tuple[str, str] | None = None) -> Any:
        """Return the tokenizer, with `words` for input that is already split into words.

        `languages` are those of a text and of its answer, for a tokenizer that names some.
        """
        key = words, languages
        if key not in self._tokenizers:  # train, dev and test are encoded one after another
            tokenizer = self.architecture.tokenizer(
                self._files(), self.config["model_type"], self.tokenizer_kind, words=words
            )
            if languages:
                tokenizer.src_lang, tokenizer.tgt_lang = languages
            self._tokenizers[key] = tokenizer
        return self._tokenizers[key]

    @cached_property
    def languages(self) -> Mapping[str, int]:
        """The tokens of the languages that the tokenizer names: `en_XX`, or `en` for `__en__`."""
        tokenizer: Any = self.tokenizer() if self.architecture.has_decoder else None
        if not hasattr(type(tokenizer), "src_lang"):
            return {}
        special = [t for t in tokenizer.all_special_tokens if _LANGUAGE.fullmatch(t)]
        ids = dict(zip(special, tokenizer.convert_tokens_to_ids(special), strict=True))
        ids |= getattr(tokenizer, "lang_code_to_id", {})
        none, rows = tokenizer.unk_token_id, self.embedding_rows
        return {name.strip("_"): i for name, i in ids.items() if none != i < rows}

    @cached_property
    def rowless(self) -> Mapping[int, str]:
        """The tokens of the tokenizer that have no row in the embedding, by id."""
        vocabulary = self.tokenizer().get_vocab()
        return {i: token for token, i in vocabulary.items() if i >= self.embedding_rows}

    @cached_property
    def embedding_rows(self) -> int:
        """The number of rows of the word embedding."""
        stated = self.config.get("vocab_size")
        return stated or int(self.model.get_input_embeddings().weight.shape[0])

    def tokenizer_digest(self) -> str:
        """Return a hash (16 hex digits) of the model type and the tokenizer's files."""
        facts = f"{self.config['model_type']} {tokenizers.digest(self._files())}"
        return hashlib.sha256(facts.encode()).hexdigest()[:16]

    def load(self, dtype: torch.dtype = torch.float32, device: str = "cpu") -> None:
        """Read the weights; a model type without an entry must pass the checks of `proof`."""
        self.read_weights(dtype, device)
        if self.architecture.probed:
            from ptrun.backbone import proof  # it imports transformers, unlike a plan

            proof.accept(self)

    def read_weights(self, dtype: torch.dtype = torch.float32, device: str = "cpu") -> None:
        """Read the frozen weights one by one into their final place; refuse lost or other ones."""
        folder = self._files()
        self.__dict__.pop("model", None)
        with reading(self.name, folder):
            stated = files.read_config(folder)
            stated.pop("quantization_config", None)
            for key, size in self.config.items():  # a download must be what its option describes
                if type(size) is int and _SIZE.search(key) and stated.get(key, size) != size:
                    raise UserError(
                        f"backbone={self.name}: {key} is {stated[key]!r:.20} in its files and "
                        f"{size} in its option. Type backbone.path=FOLDER for your own model."
                    )
            chosen = self.architecture.model_class, self._library_config(stated), folder
            if note := dequantization(folder):
                twice = f", then rounded again by hardware.quantization={self.quantization}"
                again = twice if self.quantization != "none" else ""
                _LOG.info("%s: %s%s", self.name, note, again)
            own_output = self._has_own_output()  # refuses a T5 without its output matrix
            if self.division is None and self.quantization == "none":
                model, missing = weights.read(*chosen, dtype, device)
            else:
                model = weights.skeleton(*chosen, own_output=own_output)
                self._replace_maps(model)
                cuts = divide(model, self.architecture, self.division) if self.division else {}
                missing = weights.fill(
                    model, folder, dtype, device, lambda n, t: self._part(cuts.get(n, Cut()), t)
                )
                self.cuts = {id(p): cuts[n] for n, p in model.named_parameters() if n in cuts}
        if lost := sorted(name for name in missing if not self.architecture.of_head(name)):
            raise UserError(
                f"backbone={self.name}: the weights lack {len(lost)} tensors, among them {lost[0]}."
            )
        self.has_head = not missing
        if self.architecture.pooler:
            self.__dict__.pop("has_pooler", None)  # the folder may have been fetched since
            tensors = stored_pooler(folder) if self.has_pooler else {}
            seed = (self.tuned or self).pooler_seed
            model.pooler = pooler(self.shape.hidden_size, tensors, seed).to(dtype)
        self.__dict__["model"] = self._prepare(model)
        self.kept.clear()
        if self.tuned:
            self.tuned.put(self)
        if self.parameters is not None and self.size() != self.parameters:
            raise UserError(
                f"backbone={self.name} has {self.size():,} parameters, not the published "
                f"{self.parameters:,}; check that this is the right checkpoint."
            )

    def quantize(self, kind: Quantization) -> None:
        """Choose how linear maps are held, before `load`; refuse experts in one tensor."""
        if kind != "none" and self.architecture.fused:
            raise UserError(
                f"hardware.quantization={kind}: the experts of {self.name} are one tensor, which "
                "ptrun does not quantize. Leave it out."
            )
        self.quantization = kind
        self.__dict__.pop("model", None)

    def body(self, *, decoder: bool = True, head: bool = False) -> dict[str, nn.Parameter]:
        """Return the parameters of full tuning: with `head` the output head, else a trained pooler.

        `decoder=False` leaves out the decoder of an encoder-decoder.
        """
        if head:
            every = self.model.named_parameters()
            return {n: p for n, p in every if not n.startswith("pooler.")}
        body = self.architecture.body(self.model).named_parameters()
        pooler = self.model.pooler.named_parameters(prefix="pooler") if self.has_pooler else ()
        unused = ("lm_head.",) if decoder else ("lm_head.", "decoder.")
        return {n: p for n, p in body if not n.startswith(unused)} | dict(pooler)

    def linear_maps(self) -> dict[str, Any]:
        """Return the linear maps of the layers by their path, as `Family.linear_maps`."""
        return self.architecture.linear_maps(self.model)

    def size(self) -> int:
        """Return the number of parameters, counted as published; needs no weights."""
        return sum(p.numel() * self.held(p) for p in self.architecture.counted(self.model))

    def own(self, parameter: nn.Parameter, tensor: Any) -> Tensor:
        """Return this rank's part of a parameter, from a whole tensor or a safetensors slice."""
        return self._part(self.cut_of(parameter), tensor)

    def cut_of(self, parameter: nn.Parameter | None) -> Cut:
        """Return how a parameter is divided; only the backbone's are."""
        return self.cuts.get(id(parameter), Cut())

    def held(self, parameter: nn.Parameter) -> int:
        """Return over how many ranks a parameter is divided."""
        cut = self.cut_of(parameter)
        return self.division.size if self.division and cut.axis is not None else 1

    def embed(self, ids: Tensor) -> Tensor:
        """Return raw word embeddings, `[B, T] -> [B, T, E]`."""
        return cast(Tensor, self.model.get_input_embeddings()(ids) * self.injection.unit)

    def embed_whole(self, inputs: BackboneInput) -> Tensor:
        """Return a BERT-like encoder's whole embedding `[B, T, E]`: with positions, types, norm."""
        layer = self.architecture.body(self.model).embeddings
        positions = self.architecture.positions(self.model, inputs)  # type: ignore[attr-defined]
        with self.injection.of(inputs):
            embedded = layer(inputs.ids, token_type_ids=inputs.types, position_ids=positions)
        return cast(Tensor, embedded)

    def checkpoint(self, active: bool) -> None:
        """Switch activation checkpointing on or off: less memory for one more forward pass."""
        self._replayed = active
        if active:
            replay = {"use_reentrant": False, "context_fn": self.injection.replay}
            self.model.activation_checkpointing_enable(replay)
        else:
            self.model.activation_checkpointing_disable()

    def forward(self, inputs: BackboneInput) -> BackboneOutput:
        """Run the model once and return the outputs at the requested positions."""
        replayed = self._replayed and torch.is_grad_enabled()  # works only in training mode
        if self.model.training is not (replayed or inputs.keys is not None):
            self.model.train(not self.model.training)
        packing = self.architecture.packing(inputs)
        with self.injection.of(inputs, packing):
            (hidden,) = self.injection.narrow(self.architecture.hidden(self.model, inputs, packing))
        states, pooled, predicted = requested(hidden, inputs, packing)
        if predicted is not None and not self.has_head:
            raise UserError(f"backbone={self.name} has no output head; type readout=head.")
        return BackboneOutput(
            hidden=states,
            pooled=None if pooled is None else activate(self.model, self.model.pooler(pooled)),
            logits=None if predicted is None else self.architecture.logits(self.model, predicted),
        )

    @torch.no_grad()
    def read(self, sites: Sequence[tuple[Reader, Site]], ids: Sequence[int]) -> Tensor:
        """Return keys and values `[T, 2 n, heads, d]` of T tokens at n attentions; keys are even.

        Keys are rotated to their positions, from 0. The decoder of an encoder-decoder reads the
        tokens too.
        """
        row = torch.tensor([list(ids)], device=self.model.get_input_embeddings().weight.device)
        mask, start = torch.ones_like(row, dtype=torch.bool), torch.zeros_like(row[:, 0])
        decoder = DecoderInput(mask=mask, ids=row) if self.architecture.has_decoder else None
        seen: dict[tuple[Reader, Site], tuple[Tensor, Tensor, Any]] = {}
        self.injection.seen = seen
        try:
            at = Positions(start, start + len(ids) - 1)
            self.forward(BackboneInput(ids=row, mask=mask, decoder=decoder, hidden_at=at))
        finally:
            self.injection.seen = None
        tensors = [tensor[0] for site in sites for tensor in seen[site][:2]]
        if self.division:
            tensors = [self.division.whole(tensor, 0) for tensor in tensors]
        return torch.stack([tensor.transpose(0, 1).float() for tensor in tensors], dim=1)

    def _library_config(self, content: dict[str, Any]) -> Any:
        """Return the configuration object, with our attention where it can be registered."""
        from ptrun.backbone.attention import NAME

        architecture, content = self.architecture, content | self._overrides
        if architecture.other_head and files.stores(self.folder, f"{architecture.other_head}."):
            content["legacy"] = False  # DeBERTa's published configurations lack this
        config = architecture.library_config(content)
        config._attn_implementation = architecture.attention or NAME
        return config

    def _has_own_output(self) -> bool:
        """Return whether a T5 has an untied output matrix; the library ties every new one (5.23).

        Before the weights are loaded, a stored copy of the embeddings counts as untied.
        """
        if not self.architecture.has_decoder:
            return False
        untied = self.config.get("tie_word_embeddings") is False
        if self.folder is None:
            return untied
        if files.stores(self.folder, "lm_head.weight"):
            return True
        if untied and self.config["model_type"] in _T5:  # the library takes the embeddings
            raise UserError(
                f"{self.folder}: the weights lack lm_head.weight, and config.json says that the "
                "output is not the word embeddings (tie_word_embeddings=false).\n"
                "Copy the whole model again."
            )
        return False

    def _files(self) -> Path:
        if self.folder is None:
            if self.repository is None:
                raise UserError(f"backbone={self.name} is not on the hub: {self.source}")
            from ptrun.hub import download
            from ptrun.hub.convert import convert_folder

            check = partial(tokenizers.check_packages, model_type=self.config["model_type"])
            self.folder = download.fetch(self.repository, convert_folder, check)
        return self.folder

    def _part(self, cut: Cut, tensor: Any) -> Tensor:
        rank, size = (self.division.rank, self.division.size) if self.division else (0, 1)
        return cut.part(tensor, rank, size)

    def _replace_maps(self, model: Any) -> None:
        if self.quantization != "none":
            from ptrun.backbone.quantization import replace

            replace(model, self.architecture.linear_maps(model), self.quantization)

    def _prepare(self, model: Any) -> Any:
        """Freeze, and connect dropout, attention and edit hooks to the current pass."""
        self.injection = Injection(self.division)
        self.architecture.prepare(model, self.injection)
        install(model, self.injection)
        return model.requires_grad_(False).eval()


def transposed(backbone: PretrainedBackbone) -> bool:
    """Return whether the linear maps are GPT-2's `Conv1D`; quantized ones never are."""
    return backbone.architecture.paths is GPT2_PATHS and backbone.quantization == "none"


def sizes(module: Any) -> tuple[int, int]:
    """Return the input and output width of a linear map."""
    if isinstance(module, nn.Linear):  # one that is divided has a part of the weight
        return module.in_features, module.out_features
    rows, columns = module.weight.shape
    return rows, columns


# The pooler of an encoder, from the checkpoint or untrained.
#
# An untrained one differs by the run's seed, as in the papers' code, which draws it when it loads
# the model. The seed is in the run's manifest, so prediction draws the same again.

_SEED = 20211014  # alone in runs from before the seed counted
_NAMES = ("pooler.dense.weight", "pooler.weight")  # ALBERT's is the second


def stored_pooler(folder: Path) -> dict[str, Stored]:
    """Return the tensors of a checkpoint's pooler, `weight` and `bias`; none if it has none."""
    tensors = stored(folder)
    weight = next((name for name in tensors if name.endswith(_NAMES)), None)
    if weight is None:
        return {}
    return {"weight": tensors[weight], "bias": tensors[weight.replace("weight", "bias")]}


def pooler(size: int, tensors: Mapping[str, Stored], seed: int | None) -> nn.Linear:
    """Return the stored pooler `Linear(H, H)`, or an untrained one that a seed draws."""
    linear = nn.Linear(size, size)
    generator = torch.Generator().manual_seed(_SEED + (seed or 0))
    nn.init.normal_(linear.weight, std=0.02, generator=generator)
    nn.init.zeros_(linear.bias)
    with torch.no_grad():
        for name, tensor in tensors.items():
            linear.get_parameter(name).copy_(tensor[...])
    return linear


def activate(model: Any, dense: Tensor) -> Tensor:
    """Return pooled states `[K, H]` from a dense map's: GELU where DeBERTa names it, else tanh."""
    from transformers.activations import ACT2FN

    pooled: Tensor = ACT2FN[getattr(model.config, "pooler_hidden_act", "tanh")](dense)
    return pooled
