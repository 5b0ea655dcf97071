"""The encoder family: BERT, RoBERTa and ELECTRA, with the three injection points.

    ptrun backbone=bert_large_cased        ptrun backbone.path=FOLDER

Input embeddings go in as raw word embeddings; prefixes through our registered attention function;
edits of hidden states through hooks on layers, attention outputs and feed-forward outputs.
"""

from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ptrun.backbone import files
from ptrun.backbone.base import BackboneInput, BackboneOutput, Positions
from ptrun.backbone.dropout import install
from ptrun.backbone.encoders import kind_of, shape_of
from ptrun.backbone.injection import Injection, connect, hook
from ptrun.errors import UserError

_POOLER_SEED = 20211014  # a checkpoint without a pooler gets one from this seed, in every run


class MaskedBackbone:
    """A pretrained encoder; light until `load()`.

    Args:
        name: the name in results.
        hub: hub id; `revision`: its pinned commit or tag.
        shipped: name of a model inside the package.
        path: local folder, before all others.
        config: sizes of a hub model, so that it can be counted and checked without a network.
        dtype: default precision on hardware that has it.
        lr: learning rates that suit it, by what is learned (`prompt`, `full`); method files read
            them from the configuration.
        parameters: published size of encoder and pooler, checked at load; null to skip.

    Raises:
        UserError: the model is not of this family, or its folder is not readable.
    """

    family = "masked"

    def __init__(
        self,
        *,
        name: str,
        hub: str | None = None,
        revision: str | None = None,
        shipped: str | None = None,
        path: str | None = None,
        config: dict[str, Any] | None = None,
        dtype: str = "bf16",
        parameters: int | None = None,
        lr: dict[str, float] | None = None,
    ):
        self.name = Path(path).resolve().name if path else name
        self.hub, self.revision, self.dtype = hub, revision, dtype
        self.folder = files.locate(shipped, path)
        self.parameters = parameters if path is None else None
        self.config = files.read_config(self.folder) if self.folder else dict(config or {})
        self.kind = kind_of(self.name, self.config)
        self.shape = shape_of(self.config, self.kind)
        self.has_pooler = bool(self._pooler_file()) or self._hub_pooler()
        self.has_head, self.fetched = True, False
        self._tokenizers: dict[bool, Any] = {}

    @cached_property
    def model(self) -> Any:
        """Encoder, pooler and output head; on the meta device until `load()`."""
        with torch.device("meta"):
            model = self._class()(self._library_config())
            model.pooler = nn.Linear(self.shape.hidden_size, self.shape.hidden_size)
        return self._prepare(model)

    @property
    def commit(self) -> str | None:
        """The commit a hub revision led to, once it is fetched."""
        return self.folder.name if self.fetched and self.folder else None

    @property
    def weights(self) -> str:
        """What identifies the weights: a fingerprint of local files, or hub id and revision."""
        return files.fingerprint(self.folder) if self.folder else f"{self.hub}@{self.revision}"

    def tokenizer(self, words: bool = False) -> Any:
        """Return the tokenizer; `words` for pre-split input (RoBERTa then adds a prefix space)."""
        from transformers import AutoTokenizer

        if words not in self._tokenizers:  # train, dev and test are encoded one after another
            extra = {"add_prefix_space": True} if words and self.kind.numbers_from_pad else {}
            self._tokenizers[words] = AutoTokenizer.from_pretrained(self._files(), **extra)
        return self._tokenizers[words]

    def load(self) -> None:
        """Read the weights in fp32, frozen.

        Raises:
            UserError: files cannot be fetched, weights are missing, or the size is not the
                published one.
        """
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        folder = self._files()
        model, report = self._class().from_pretrained(
            folder,
            config=self._library_config(folder),
            dtype=torch.float32,
            use_safetensors=True,
            output_loading_info=True,
        )
        self._check_missing(report["missing_keys"])
        model.pooler = self._pooler()
        self.__dict__["model"] = self._prepare(model)
        self._check_size()

    def body(self) -> dict[str, nn.Parameter]:
        """Return what full tuning learns: the encoder, and the pooler if it was trained."""
        pooler = self.model.pooler.named_parameters(prefix="pooler") if self.has_pooler else ()
        return dict(self._encoder.named_parameters()) | dict(pooler)

    def size(self) -> int:
        """Return the published count: encoder, and pooler where the architecture has one."""
        pooler = self.model.pooler.parameters() if self.kind.counts_pooler else ()
        return sum(p.numel() for p in [*self._encoder.parameters(), *pooler])

    def embed(self, ids: Tensor) -> Tensor:
        """Return raw word embeddings, `[B, T] -> [B, T, E]`."""
        embedded: Tensor = self._encoder.get_input_embeddings()(ids)
        return embedded

    def checkpoint(self, active: bool) -> None:
        """Switch activation checkpointing: less memory, one more forward in the backward."""
        if active:
            replay = {"use_reentrant": False, "context_fn": self.injection.replay}
            self.model.activation_checkpointing_enable(replay)
        else:
            self.model.activation_checkpointing_disable()

    def forward(self, given: BackboneInput) -> BackboneOutput:
        """Run the encoder once and read only the positions asked for."""
        training = given.keys is not None
        if self.model.training != training:
            self.model.train(training)
        with self.injection.of(given):
            hidden = self._encoder(
                input_ids=given.ids,
                inputs_embeds=given.embeddings,
                attention_mask=given.mask[:, None, None, :],
                token_type_ids=given.types,
                position_ids=self._positions(given),
            ).last_hidden_state
        return BackboneOutput(
            hidden=_pick(hidden, given.hidden_at),
            pooled=self._pool(_pick(hidden, given.pooled_at)),
            logits=self._logits(_pick(hidden, given.logits_at)),
        )

    def _positions(self, given: BackboneInput) -> Tensor:
        """Number real tokens in order, whichever side is padded, then shift."""
        order = given.mask.long().cumsum(dim=1)
        first = self.config.get("pad_token_id", 1) + 1 if self.kind.numbers_from_pad else 0
        positions = (order - 1).clamp(min=0) + first
        return positions if given.shift is None else positions + given.shift[:, None]

    def _pool(self, hidden: Tensor | None) -> Tensor | None:
        pooled: Tensor | None = None if hidden is None else self.model.pooler(hidden).tanh()
        return pooled

    def _logits(self, hidden: Tensor | None) -> Tensor | None:
        if hidden is None:
            return None
        if not self.has_head:
            raise UserError(f"backbone={self.name} has no output head; choose another read-out.")
        logits: Tensor = getattr(self.model, self.kind.head)(hidden)
        return logits if logits.dim() == 2 else logits[:, None]

    @property
    def _encoder(self) -> Any:
        return self.model.base_model

    def _class(self) -> Any:
        import transformers

        return getattr(transformers, self.kind.model)

    def _library_config(self, folder: Path | None = None) -> Any:
        """Return the transformers configuration, our attention chosen."""
        from transformers import AutoConfig

        from ptrun.backbone.attention import NAME

        source = files.read_config(folder) if folder else self.config
        content = {key: value for key, value in source.items() if key != "model_type"}
        config = AutoConfig.for_model(source["model_type"], **content)
        config._attn_implementation = NAME
        return config

    def _files(self) -> Path:
        if self.folder is None:
            self.folder = files.fetch(str(self.hub), self.revision)
            self.fetched = True
            files.weight_files(self.folder)
        return self.folder

    def _prepare(self, model: Any) -> Any:
        """Freeze, and connect dropout, attention and edit hooks to the current pass."""
        self.injection = Injection()
        install(model, self.injection)
        for index, layer in enumerate(model.base_model.encoder.layer):
            connect(layer.attention.self, self.injection, index)
            hook(layer, self.injection, ("layer", index))
            hook(layer.attention.output.dense, self.injection, ("attention", index))
            hook(layer.output.dense, self.injection, ("ffn", index))
        return model.requires_grad_(False).eval()

    def _check_missing(self, missing: set[str]) -> None:
        head = f"{self.kind.head}."
        self.has_head = not any(name.startswith(head) for name in missing)
        lost = sorted(name for name in missing if not name.startswith(head))
        if lost:
            raise UserError(
                f"backbone={self.name}: the weights lack {len(lost)} tensors, among them {lost[0]}."
            )

    def _hub_pooler(self) -> bool:
        """BERT's hub checkpoints carry the pooler of next-sentence training, RoBERTa's do not."""
        return self.folder is None and self.config["model_type"] == "bert"

    def _pooler_file(self) -> tuple[Path, str] | None:
        """Return the file and name of the checkpoint's pooler weight, if it has one."""
        for file in files.weight_files(self.folder) if self.folder else ():
            for name in files.tensor_table(file):
                if name.endswith("pooler.dense.weight"):
                    return file, name
        return None

    def _pooler(self) -> nn.Linear:
        """Return the checkpoint's pooler, or the same untrained one for every run."""
        from safetensors import safe_open

        pooler = nn.Linear(self.shape.hidden_size, self.shape.hidden_size)
        generator = torch.Generator().manual_seed(_POOLER_SEED)
        nn.init.normal_(pooler.weight, std=0.02, generator=generator)
        nn.init.zeros_(pooler.bias)
        found = self._pooler_file()
        self.has_pooler = found is not None
        if found is not None:
            file, name = found
            with safe_open(file, "pt") as opened, torch.no_grad():
                pooler.weight.copy_(opened.get_tensor(name))
                pooler.bias.copy_(opened.get_tensor(name.replace("weight", "bias")))
        return pooler

    def _check_size(self) -> None:
        if self.parameters is not None and self.size() != self.parameters:
            raise UserError(
                f"backbone={self.name} has {self.size():,} parameters, not the published "
                f"{self.parameters:,}; is this the right checkpoint?"
            )


def _pick(hidden: Tensor, at: Positions | None) -> Tensor | None:
    return None if at is None else hidden[at.rows, at.columns]
