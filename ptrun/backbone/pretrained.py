"""A pretrained backbone of any family: where it comes from, its weights, its one forward pass.

    ptrun backbone=bert_large_cased        ptrun backbone.path=FOLDER

The family follows from the configuration's `model_type`, also for a local folder. Raw word
embeddings go in as input; prefixes through our attention; edits through hooks.
"""

import hashlib
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ptrun.backbone import divided, files, library, tokenizers, weights
from ptrun.backbone.base import BackboneInput, BackboneOutput, Shape, picked
from ptrun.backbone.cuts import Cut
from ptrun.backbone.division import Division
from ptrun.backbone.dropout import install
from ptrun.backbone.family import family_of
from ptrun.backbone.injection import Injection
from ptrun.backbone.pooler import pooler, stored
from ptrun.backbone.tuned import Tuned
from ptrun.errors import UserError


class PretrainedBackbone:
    """A pretrained model behind three injection points; light until `load()`.

    Args:
        name: the name in results.
        hub: hub id; `revision`: its pinned commit or tag.
        shipped: name of a model inside the package.
        path: local folder, before all others.
        config: sizes of a hub model, so that it can be counted and checked without a network.
        tokenizer: its kind; null (and with `path`): found from the folder.
        dtype: default precision on hardware that has it.
        lr: learning rates that suit it, by what is learned (`prompt`, `full`); method files read
            them from the configuration.
        parameters: published size, checked at load; null to skip.
        source: what to do for a model that no hub has.

    Raises:
        UserError: the model is of no supported family, or its folder is not readable.
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
        parameters: int | None = None,
        lr: dict[str, float] | None = None,
        source: str | None = None,
    ):
        self.name = Path(path).resolve().name if path else name
        self.hub, self.revision, self.dtype, self.source = hub, revision, dtype, source
        self.folder = files.locate(shipped, path)
        self.parameters = parameters if path is None else None
        self.tokenizer_kind = tokenizer if path is None else None
        self.config = files.read_config(self.folder) if self.folder else dict(config or {})
        self.architecture = family_of(self.name, self.config)
        self.family = self.architecture.name
        self.has_head, self.fetched, self._replayed = True, False, False
        self.kept: dict[bytes, Tensor] = {}  # what frozen passes found; gone when weights move
        self.division: Division | None = None  # set before `load` where ranks share the model
        self.cuts: dict[int, Cut] = {}  # of its parameters, by identity
        self.tuned: Tuned | None = None  # as which run tuned it; set before `load`
        self._tokenizers: dict[bool, Any] = {}

    @cached_property
    def model(self) -> Any:
        """Body, output head and, for encoders, pooler; on the meta device until `load()`."""
        with torch.device("meta"):
            model = library.model_class(self.architecture)(self._library_config(self.config))
            if self.architecture.pooler:
                model.pooler = nn.Linear(self.shape.hidden_size, self.shape.hidden_size)
        if self._has_own_output():
            model.lm_head.weight = nn.Parameter(torch.empty_like(model.lm_head.weight))
        return self._prepare(model)

    @cached_property
    def shape(self) -> Shape:
        """The sizes, from the configuration alone."""
        return self.architecture.shape(self._library_config(self.config))

    @cached_property
    def has_pooler(self) -> bool:
        """Whether the checkpoint has a pooler that pre-training trained."""
        if self.folder is None or not self.architecture.has_pooler:
            return self.architecture.has_pooler
        return stored(self.folder) is not None

    @property
    def writes_words(self) -> bool:
        """Whether its output head predicts words; ELECTRA's tells real tokens from replaced."""
        return self.config.get("model_type") != "electra"

    @property
    def commit(self) -> str | None:
        """The commit a hub revision led to, once it is fetched."""
        return self.folder.name if self.fetched and self.folder else None

    @property
    def weights(self) -> str:
        """What identifies the weights, and before a `+` those that no run has tuned."""
        return f"{self._untuned}+{self.tuned.digest}" if self.tuned else self._untuned

    @cached_property
    def _untuned(self) -> str:
        """A fingerprint of local files, or hub id and revision, fetched or not."""
        local = None if self.fetched else self.folder
        return files.fingerprint(local) if local else f"{self.hub}@{self.revision}"

    def tokenizer(self, *, words: bool = False) -> Any:
        """Return the tokenizer; `words` for input that is already split into words."""
        if words not in self._tokenizers:  # train, dev and test are encoded one after another
            self._tokenizers[words] = tokenizers.load(
                self._files(), self.config["model_type"], self.tokenizer_kind, words=words
            )
        return self._tokenizers[words]

    def tokenizer_digest(self) -> str:
        """Return what identifies the tokenizer: a hash of its files, and its settings here."""
        names = sorted({*tokenizers.FILES, "tokenizer_config.json", "merges.txt"})
        folder = self._files()
        hashed = hashlib.sha256(self.config["model_type"].encode())
        for file in (folder / name for name in names):
            hashed.update(file.read_bytes() if file.is_file() else b"")
        return hashed.hexdigest()[:16]

    def load(self, dtype: torch.dtype = torch.float32, device: str = "cpu") -> None:
        """Read the weights, frozen, one tensor after another, each as and where it stays.

        Raises:
            UserError: files cannot be fetched, weights are missing, or the size is not the
                published one.
        """
        folder = self._files()
        self.__dict__.pop("model", None)
        config = self._library_config(files.read_config(folder))
        chosen = library.model_class(self.architecture), config, folder
        if self.division:
            whole = *chosen, self._has_own_output()
            model, self.cuts, missing = divided.load(*whole, self.division, dtype)
        else:
            model, missing = weights.read(*chosen, dtype, device)
        heads = self.architecture.head, self.architecture.other_head
        self.has_head = weights.has_head(self.name, missing, heads)
        if self.architecture.pooler:
            self.__dict__.pop("has_pooler", None)  # the folder may have been fetched since
            found = stored(folder) if self.has_pooler else None
            model.pooler = pooler(self.shape.hidden_size, found).to(dtype)
        self.__dict__["model"] = self._prepare(model)
        self.kept.clear()
        if self.tuned:
            self.tuned.put(self)
        self._check_size()

    def body(self, *, decoder: bool = True, head: bool = False) -> dict[str, nn.Parameter]:
        """Return what full tuning learns: the model, without its output head unless `head`.

        A trained pooler goes with it where there is no head to read. Without `decoder`, that of an
        encoder-decoder is left out: nothing reads it.
        """
        if head:
            every = self.model.named_parameters()
            return {n: p for n, p in every if not n.startswith("pooler.")}
        own = dict(self.architecture.body(self.model).named_parameters())
        pooler = self.model.pooler.named_parameters(prefix="pooler") if self.has_pooler else ()
        unread = ("lm_head.",) if decoder else ("lm_head.", "decoder.")
        return {n: p for n, p in own.items() if not n.startswith(unread)} | dict(pooler)

    def size(self) -> int:
        """Return the number of parameters as published; needs no weights."""
        return sum(p.numel() * self.held(p) for p in self.architecture.counted(self.model))

    def own(self, parameter: nn.Parameter, whole: Any) -> Tensor:
        """Return what a rank holds of a parameter, of a whole tensor or a safetensors slice."""
        if self.division is None:
            return whole[:]  # type: ignore[no-any-return]
        return self.cuts[id(parameter)].part(whole, self.division.rank, self.division.size)

    def held(self, parameter: nn.Parameter) -> int:
        """Return how many ranks hold a parameter together."""
        cut = self.cuts.get(id(parameter), Cut())
        return self.division.size if self.division and cut.axis is not None else 1

    def embed(self, ids: Tensor) -> Tensor:
        """Return raw word embeddings, `[B, T] -> [B, T, E]`."""
        embedded: Tensor = self.model.get_input_embeddings()(ids) * self.injection.unit
        return embedded

    def embed_whole(self, given: BackboneInput) -> Tensor:
        """Return all that a BERT-like encoder's embedding layer makes of `ids`, `[B, T, E]`.

        Beside words that is positions, types, LayerNorm and dropout.
        """
        assert given.ids is not None
        layer = self.architecture.body(self.model).embeddings
        positions = self.architecture.positions(self.model, given)  # type: ignore[attr-defined]
        with self.injection.of(given):
            whole: Tensor = layer(given.ids, token_type_ids=given.types, position_ids=positions)
        return whole

    def checkpoint(self, active: bool) -> None:
        """Switch activation checkpointing: less memory, one more forward in the backward."""
        self._replayed = active
        if active:
            replay = {"use_reentrant": False, "context_fn": self.injection.replay}
            self.model.activation_checkpointing_enable(replay)
        else:
            self.model.activation_checkpointing_disable()

    def forward(self, given: BackboneInput) -> BackboneOutput:
        """Run the model once and read only the positions asked for."""
        replayed = self._replayed and torch.is_grad_enabled()  # in training mode alone
        if self.model.training is not (replayed or given.keys is not None):
            self.model.train(not self.model.training)
        with self.injection.of(given):
            hidden = self.architecture.hidden(self.model, given)
        return BackboneOutput(
            hidden=picked(hidden, given.hidden_at),
            pooled=self._pool(picked(hidden, given.pooled_at)),
            logits=self._logits(picked(hidden, given.logits_at)),
        )

    def _pool(self, hidden: Tensor | None) -> Tensor | None:
        pooled: Tensor | None = None if hidden is None else self.model.pooler(hidden).tanh()
        return pooled

    def _logits(self, hidden: Tensor | None) -> Tensor | None:
        if hidden is None:
            return None
        if not self.has_head:
            raise UserError(f"backbone={self.name} has no output head; choose another read-out.")
        return self.architecture.logits(self.model, hidden)

    def _library_config(self, content: dict[str, Any]) -> Any:
        """Return the transformers configuration; our attention where the library lets us choose."""
        from ptrun.backbone.attention import NAME

        if self.architecture.other_head and self._stores(f"{self.architecture.other_head}."):
            # DeBERTa's published configurations do not say so themselves
            content = {**content, "legacy": False}
        config = library.library_config(self.architecture, content)
        config._attn_implementation = self.architecture.attention or NAME
        return config

    def _has_own_output(self) -> bool:
        """Whether a T5 has an output matrix of its own; the library ties every new one (5.23).

        A file that repeats its embeddings as one counts as such until it is loaded.
        """
        if self.family != "seq2seq":
            return False
        if self.folder is None:
            return self.config.get("tie_word_embeddings") is False
        return self._stores("lm_head.weight")

    def _stores(self, start: str) -> bool:
        """Return whether the local files hold a tensor whose name starts so."""
        found = files.weight_files(self.folder) if self.folder else []
        return any(name.startswith(start) for f in found for name in files.tensor_table(f))

    def _files(self) -> Path:
        if self.folder is None:
            if self.hub is None:
                raise UserError(f"backbone={self.name} is on no hub: {self.source}")
            self.folder = files.fetch(self.hub, self.revision)
            self.fetched = True
        return self.folder

    def _prepare(self, model: Any) -> Any:
        """Freeze, and connect dropout, attention and edit hooks to the current pass."""
        self.injection = Injection()
        self.injection.division = self.division
        self.architecture.prepare(model, self.injection)
        install(model, self.injection)
        return model.requires_grad_(False).eval()

    def _check_size(self) -> None:
        if self.parameters is not None and self.size() != self.parameters:
            raise UserError(
                f"backbone={self.name} has {self.size():,} parameters, not the published "
                f"{self.parameters:,}; is this the right checkpoint?"
            )
