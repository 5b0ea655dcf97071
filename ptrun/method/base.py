"""The base class of methods: inputs for the backbone, a read-out, and learned parameters."""

from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ptrun.backbone.base import BackboneInput, BackboneOutput, DecoderInput
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.backbone.seq2seq import learned_divisor
from ptrun.config.build import Component, build, target
from ptrun.errors import UserError
from ptrun.prompt import DeepPrefix, PromptEncoder
from ptrun.readout.base import Batch, Features, Readout, unlimited
from ptrun.readout.choose import READINGS, automatic, resolved
from ptrun.readout.reading import Reading
from ptrun.task.columns import in_parts
from ptrun.task.dataset import Task
from ptrun.types import Example, Prediction

_FAR = 10**6  # tokens: no limit on a row
_LEAST_TOKENS = 8  # with fewer positions left by the prompt, no example fits


class Method(nn.Module):
    """A prompt, a read-out and a set of learned parameters. The engine calls the backbone.

    A sub-class adds its prompt in `inputs`, and returns the positions it takes in
    `prompt_positions`. `soft` allows patterns with learned vectors. `readouts` lists the
    supported read-outs, in order of preference; `needs` has the fields of
    `ptrun.backbone.family.Family` that must be true of a backbone, each with words for it. Its
    constructor passes `*run`, which are the arguments below, and has its options as keywords.

    Args:
        backbone: frozen, unless `tunes_backbone`.
        task: provides examples, labels and patterns.
        reading: how predictions are read; None is the first of `readouts` that reads the task.

    >>> from ptrun.testing import read
    >>> method, batch, output = read("method=ptuning_v2")
    >>> method.learned_parameters()
    {'prompt': 20480, 'head': 258, 'backbone': 0, 'total': 20738}
    """

    soft: ClassVar[bool] = False
    readouts: ClassVar[Sequence[str]] = tuple(READINGS)
    needs: ClassVar[Mapping[str, str]] = {}
    tunes_backbone: bool = False
    changes_maps: ClassVar[bool] = False
    """Whether it adds to the outputs of the frozen backbone's linear maps."""
    changes_modules: ClassVar[bool] = False
    """Whether it puts layers of its own into the frozen backbone."""
    static: ClassVar[bool] = True
    """Whether the `inputs` of this class computes from the tensors of a batch and from parameters
    alone, so that a GPU can replay it. A class with other `inputs` must say so anew."""
    learns: ClassVar[bool] = True
    """Whether it has parameters to train."""
    prefixes: ClassVar[bool] = False
    """Whether it puts keys and values before those of a layer."""
    edited: ClassVar[frozenset[str]] = frozenset()
    """The sites of each layer where it must be able to edit hidden states."""
    may_differ: ClassVar[Sequence[str]] = ()
    """Options in which runs that share passes may differ."""
    rates: Mapping[str, float] = {}
    """Learning rates by the beginning of parameters' names; all others have `train.lr`."""
    record: Mapping[str, Any] = {}
    """What the manifest of its run has of it."""

    def __init__(self, backbone: PretrainedBackbone, task: Task, reading: Reading | None = None):
        super().__init__()
        self.backbone, self.task = backbone, task
        self.reading = reading or automatic(task, self.readouts)()
        self.reading.check(backbone, task, soft=self.soft)
        self.readout = self.reading.made(backbone, task, soft=self.soft)

    @property
    def alone(self) -> bool:
        """Whether it tunes or changes the backbone, so that no other member can share it."""
        return self.tunes_backbone or self.changes_modules

    @property
    def replays(self) -> bool:
        """Whether a GPU can replay its passes: its `inputs` are static, and the backbone frozen."""
        definer = next(kind for kind in type(self).__mro__ if "inputs" in vars(kind))
        return bool(vars(definer).get("static")) and not self.alone

    def prime(self, train: Sequence[Example]) -> None:
        """Take what it needs of the training examples, before a row is encoded."""

    def placed(self) -> None:
        """Finish the setup once the backbone is loaded and both are on the device."""

    @property
    def prompt_positions(self) -> int:
        """Number of the backbone's positions that the prompt takes from the text."""
        return 0

    @property
    def positions_added(self) -> int:
        """Number of learned vectors that a row's tokens read, with or without positions."""
        return self.prompt_positions

    def room(self) -> int:
        """Return the longest input in tokens; refuse a prompt that leaves fewer than 8."""
        positions = self.backbone.shape.positions
        left = positions - self.prompt_positions
        if left < _LEAST_TOKENS:
            raise UserError(
                f"method.length is {self.prompt_positions}, but {self.backbone.name} has "
                f"{positions} positions; use method.length={positions - _LEAST_TOKENS} or less."
            )
        return left

    def encode(self, examples: Sequence[Example], *, whole: bool = False) -> list[Features]:
        """Tokenize examples; `whole` cuts none."""
        return list(self.encoded(examples, whole=whole))

    def encoded(self, examples: Sequence[Example], *, whole: bool = False) -> Iterator[Features]:
        """Yield tokenized examples; a part of them is in memory at a time."""
        readout, room = (self._unlimited, _FAR) if whole else (self.readout, self.room())
        for part in in_parts(examples):
            features = readout.encode(part, room)
            for example in features if self.backbone.rowless else ():
                ids = {i for row in example.rows for i in (*row.ids, *(row.decoder or ()))}
                for number in sorted(ids & self.backbone.rowless.keys()):
                    raise UserError(  # it would end the process on a GPU
                        f"{example.id}: its text has the token {self.backbone.rowless[number]!r} "
                        f"with the id {number}, and the embedding of backbone={self.backbone.name} "
                        f"has {self.backbone.embedding_rows:,} rows. Use the tokenizer that "
                        "belongs to these weights, or leave the token out of the text."
                    )
            yield from features

    @cached_property
    def _unlimited(self) -> Readout:
        return unlimited(self.readout)

    @classmethod
    def learns_vectors(cls, node: Mapping[str, Any]) -> bool:
        """Return whether this configuration learns input vectors directly.

        Only those can start from words.
        """
        return False

    @classmethod
    def unfit_for_context(cls, node: Mapping[str, Any], backbone: PretrainedBackbone) -> str | None:
        """Return why keys and values of a text cannot start this configuration, or None."""
        return "learns no keys and values. Type method=ptuning_v2."

    @classmethod
    def shares(
        cls, node: Mapping[str, Any], backbone: PretrainedBackbone
    ) -> Mapping[str, Any] | None:
        """Return what runs must have in common to share passes; None if each runs alone."""
        if cls.tunes(node) or cls.changes_modules:
            return None
        return {key: value for key, value in node.items() if key not in cls.may_differ}

    def unfolded(self, exported: Mapping[str, Tensor]) -> Mapping[str, Tensor] | None:
        """Return the learned tensors that reproduce an exported prompt, to resume training from.

        None if an encoder makes the prompt: its parameters cannot be recovered from its output.
        """
        return exported

    @classmethod
    def tunes(cls, node: Mapping[str, Any]) -> bool:
        """Return whether this configuration tunes the backbone."""
        return cls.tunes_backbone

    @classmethod
    def unused(cls, node: Mapping[str, Any]) -> set[str]:
        """Return the options that change nothing in this configuration: no id has them."""
        return set()

    @classmethod
    def fingerprint_config(cls, node: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the configuration for the run id, with the content of files in place of paths."""
        return node

    def unprepared(self, features: Sequence[Features], *, training: bool) -> Sequence[Features]:
        """Return the examples that need `prepare` before they are read."""
        return ()

    def prepare(self, batch: Batch) -> None:
        """Process examples once, before training or prediction reads them."""

    def inputs(self, batch: Batch) -> BackboneInput:
        """Return the backbone's inputs for a batch, here the text alone."""
        decoder = None
        if batch.decoder is not None and batch.decoder_mask is not None:
            decoder = DecoderInput(mask=batch.decoder_mask, ids=batch.decoder)
        text = BackboneInput(
            ids=batch.ids,
            mask=batch.mask,
            lengths=batch.lengths,
            types=batch.types,
            keys=batch.keys,
            decoder=decoder,
        )
        return self.readout.request(text, batch.reads)

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return the loss `[]` of a batch, summed over its targets."""
        return self.readout.loss(output, batch)

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return a prediction for each example, or the features to read before it is known."""
        return self.readout.decode(output, batch)

    def learned(self) -> dict[str, nn.Parameter]:
        """Return the parameters to optimise, count and save; empty ones are left out."""
        return {name: p for name, p in self.named_parameters() if p.numel()}

    def learned_parameters(self) -> dict[str, int]:
        """Return the number of learned parameters in `prompt`, `head`, `backbone` and `total`.

        The parts of a backbone on other ranks count too.
        """
        counts = {"prompt": 0, "head": 0, "backbone": 0}
        for name, parameter in self.learned().items():
            part = {"readout": "head", "backbone": "backbone"}.get(name.split(".")[0], "prompt")
            counts[part] += parameter.numel() * self.backbone.held(parameter)
        return {**counts, "total": sum(counts.values())}

    def exported(self) -> dict[str, Tensor]:
        """Return the tensors that prediction needs, with reparameterizations folded.

        Those of a tuned backbone are in the unit of its checkpoint.
        """
        tensors = {name: p.detach() for name, p in self.learned().items()}
        for name, tensor in tensors.items():
            if (divisor := learned_divisor(self.backbone, name)) != 1:
                tensors[name] = tensor * divisor
        return {**tensors, **self.readout.settled()}

    def load_exported(self, tensors: dict[str, Tensor]) -> None:
        """Load exported tensors; refuse them if one is missing, or has another shape."""
        self.readout.recall(tensors)
        with torch.no_grad():
            for name, parameter in self.learned().items():
                if name not in tensors:
                    raise UserError(f"the saved prompt has no tensor {name}.")
                tensor = tensors[name] / learned_divisor(self.backbone, name)
                if tensor.shape != parameter.shape:
                    raise UserError(f"the saved prompt has {name} of another shape.")
                parameter.copy_(tensor)


def rates(key: str, rate: float | None, *names: str) -> dict[str, float]:
    """Return `Method.rates` of an option `method.KEY`; none for null, which is `train.lr`."""
    if rate is not None and rate <= 0:
        raise UserError(f"method.{key} is {rate}; use more than 0, or null for train.lr.")
    return {} if rate is None else dict.fromkeys(names, rate)


def check_pair(
    method: type[Method],
    option: str,
    node: Mapping[str, Any],
    backbone: PretrainedBackbone,
    task: Task,
    typed: Set[str] = frozenset(),
) -> tuple[str, dict[str, Any]]:
    """Check that a method supports a backbone and a task, before anything is loaded.

    Returns the option and node of the read-out, `auto` resolved: `ptrun.readout.choose.resolved`.
    """
    family = backbone.architecture
    missing = [need for key, need in method.needs.items() if not getattr(family, key)]
    if missing:
        raise UserError(
            f"{method.__name__} needs {missing[0]}, but {backbone.name} is {backbone.family}."
        )
    if method.prefixes and family.bars_prefixes:
        raise UserError(
            f"{method.__name__} puts keys and values into each layer; in {backbone.name} they "
            f"cannot enter: {family.bars_prefixes}. Use prompt_tuning, ptuning or lora."
        )
    if not method.edited <= family.edited:
        raise UserError(
            f"{method.__name__} stands behind the one feed-forward part of a layer, which ptrun "
            f"does not find in {backbone.name}. Use prompt_tuning, ptuning or lora."
        )
    offered, soft = method.readouts, method.soft
    chosen = resolved(option, node, typed, backbone, task, offered=offered, soft=soft)
    check_kept(target("readout", chosen[1]), method, tunes=method.tunes_backbone)
    return chosen


def check_kept(reading: type[Reading], method: type[Method], *, tunes: bool) -> None:
    """Refuse a method that changes the backbone where a read-out needs it as it is."""
    if reading.keeps_backbone and (tunes or method.changes_modules):
        raise UserError(
            f"readout={reading.name} reads the frozen backbone too, and {method.__name__} changes "
            "it. Use cartridge, ptuning_v2, prompt_tuning or lora."
        )


def built(
    component: Component,
    readout: tuple[str, Mapping[str, Any]],
    backbone: PretrainedBackbone,
    task: Task,
) -> Method:
    """Return the method of a checked node with its read-out, as a run builds it."""
    _, node = check_pair(component.target, *readout, backbone, task)
    method: Method = component.build(backbone, task, build("readout", node))
    return method


_PROMPT, _TABLE, _FROZEN = "prompt.", "prompt.table", "prompt.frozen"


class Folded(Method):
    """A method whose `prompt` folds into the tensor `finished`.

    >>> from ptrun.testing import read
    >>> method, batch, output = read("method=ptuning_v2")
    >>> sorted(method.exported())
    ['prompt.prefix', 'readout.linear.bias', 'readout.linear.weight']
    """

    finished: ClassVar[str]
    prompt: DeepPrefix | PromptEncoder

    def exported(self) -> dict[str, Tensor]:
        """Return the finished prompt and all other tensors, without the encoder."""
        others = {k: v for k, v in super().exported().items() if not k.startswith(_PROMPT)}
        return {self.finished: self.prompt().detach(), **others}

    def load_exported(self, tensors: dict[str, Tensor]) -> None:
        """Load a finished prompt and all other tensors."""
        if self.finished not in tensors:
            raise UserError(f"the saved prompt has no tensor {self.finished}.")
        self.prompt.fold(tensors[self.finished].to(self.prompt.table.device))
        prompt = {k: v.detach() for k, v in self.learned().items() if k.startswith(_PROMPT)}
        super().load_exported(prompt | tensors)

    def unfolded(self, exported: Mapping[str, Tensor]) -> Mapping[str, Tensor] | None:
        """Return the table, and its frozen vectors, if it is the prompt itself, else None."""
        prompt = self.prompt
        if prompt.mlp is not None or getattr(prompt, "project", None) is not None:
            return None
        others = {n: t for n, t in exported.items() if n != self.finished}
        finished = exported.get(self.finished)
        if finished is None:
            return others
        values = finished.flatten(1)
        if not isinstance(prompt, DeepPrefix) or prompt.frozen is None:
            return {_TABLE: values, **others}
        frozen, table = prompt.divided(values)
        return {_FROZEN: frozen, **({_TABLE: table} if len(table) else {}), **others}
