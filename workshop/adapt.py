"""Continue the training of an encoder-decoder as a language model (LM adaptation).

Lester et al. 2021, section 3.1. Writes a model folder that every run can use, with backbone.path=
and readout.pattern=ppt_lm. The same command resumes an interrupted adaptation.
"""

import csv
import json
import logging
import math
import platform
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch
from omegaconf import OmegaConf
from torch import Tensor, nn
from torch.nn import functional

from ptrun.backbone import tokenizers
from ptrun.backbone.base import BackboneInput, DecoderInput
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.config import build
from ptrun.config.paths import leads_out, options
from ptrun.errors import RunFailed, UserError, named, unknown
from ptrun.folder import tensors as files
from ptrun.papers.corpus import Document, blocks, digest, documents, part_of
from ptrun.pattern.spelling import mask_ids
from ptrun.readout.base import Features, TokenRow, collate
from ptrun.readout.languages import decoder_start
from ptrun.training.progress import meter
from workshop import command

_LOG = logging.getLogger("ptrun.workshop")  # printed like those of the package
EXAMPLES = """\
  python -m workshop.adapt corpus=pocket steps=200 out=DIR               pocket_t5, in minutes
  python -m workshop.adapt backbone=t5_v1_1_base corpus=DIR device=cuda  T5 v1.1 on your text
"""


@dataclass(frozen=True, kw_only=True)
class Adaptation:
    """Continued training of an encoder-decoder as a prefix language model.

    Lester et al. 2021 adapt T5 for up to 100,000 steps. PPT reports 10,000 steps, and its code uses
    a rate of 1e-3. Neither reports the batch size; the default of `batch` is our choice.

    Args:
        corpus: `pocket`, or a file or folder of documents: JSON lines or text, of any size.
        field: key of the text in a JSON line.
        out: output folder; null is `outputs/adapt/<backbone>_lm`.
        sentinel: end the text with the first sentinel and begin its continuation with it (CPM-2 in
            PPT's code); false adds none (Lester et al.).
        length: most tokens of a text and its continuation together; the cut is random.
        steps: number of optimizer steps.
        batch: texts per step.
        rate: constant learning rate.
        seed: random seed.
        optimizer: T5's `adafactor`, whose rates are relative to the weights, or `adamw`.
        held_out: number of held-out texts for the loss before and after training.
        token_budget: most padded tokens of one forward pass; limits memory.
        precision: `bf16` computes in bf16 with weights in fp32.
        device: `cpu`, `cuda`, or `auto`: a GPU if there is one.
        log_every: steps between lines of the log.
        save_every: seconds between saved states.
    """

    corpus: str = "pocket"
    field: str = "doc"
    out: str | None = None
    sentinel: bool = False
    length: int = 512
    steps: int = 10_000
    batch: int = 32
    rate: float = 1e-3
    seed: int = 0
    optimizer: Literal["adafactor", "adamw"] = "adafactor"
    held_out: int = 256
    token_budget: int = 8192
    precision: Literal["fp32", "bf16"] = "bf16"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    log_every: int = 100
    save_every: float = 300.0

    def __post_init__(self) -> None:
        """Check the ranges of the numbers."""
        least = {"steps": 1, "batch": 1, "length": 2, "held_out": 1, "log_every": 1}
        for name, smallest in {**least, "token_budget": 1}.items():
            if getattr(self, name) < smallest:
                raise UserError(f"{name} is {getattr(self, name)}; use {smallest} or more.")
        if self.rate <= 0:
            raise UserError(f"rate is {self.rate}; use more than 0.")


# Texts of a corpus for LM adaptation: the encoder reads a text, the decoder its continuation.
#
# The lines of a document are encoded one by one and joined, as in PPT's code. Every `length` tokens
# are a text, cut at a random place. Documents are read in blocks, and the texts of a block are
# shuffled, so memory does not grow with the corpus. Seed and place in the corpus decide each draw,
# so a stream resumes exactly from any place.

_SHARES = (99, 1)  # of documents: trained on, and held out
_CHARACTERS = 4_000_000  # in a block

Encode = Callable[[Sequence[str]], Sequence[list[int]]]


@dataclass(frozen=True)
class Place:
    """The place of a stream: epoch, block of documents, and number of its texts already used."""

    epoch: int = 0
    block: int = 0
    used: int = 0


@dataclass(frozen=True)
class Continuations:
    """The texts of a corpus.

    Args:
        recipe: the corpus and the lengths of texts.
        encode: a function from lines to token ids without special tokens.
        start: the first token of the decoder.
        sentinel: the token between a text and its continuation, or None.
    """

    recipe: Adaptation
    encode: Encode
    start: int
    sentinel: int | None = None

    def after(self, place: Place) -> Iterator[tuple[Place, Features]]:
        """Yield training texts without end, each with the place after it.

        Raises:
            UserError: the corpus cannot be read, or has no texts.
        """
        while True:
            has_text = place.block > 0
            for number, block in enumerate(self._blocks()):
                if number < place.block:
                    continue
                texts = self._texts(block, f"{self.recipe.seed}:{place.epoch}:{number}")
                for used in range(place.used, len(texts)):
                    yield Place(place.epoch, number, used + 1), texts[used]
                has_text |= bool(texts)
                place = Place(place.epoch, number + 1)
            if not has_text:
                raise UserError(f"corpus={self.recipe.corpus}: no text of two tokens or more.")
            place = Place(place.epoch + 1)

    def held_out(self) -> list[Features]:
        """Return the held-out texts, without the sentinel: it is easy to predict.

        Raises:
            UserError: the corpus cannot be read, or is too small.
        """
        every = (
            text
            for number, document in enumerate(self._documents(1))
            for text in self._texts([document], f"{self.recipe.seed}:held out:{number}")
        )
        marks = int(self.sentinel is not None)
        texts = [_without_first(text, marks) for text in islice(every, self.recipe.held_out)]
        if not texts:
            raise UserError(
                f"corpus={self.recipe.corpus}: too small; 1 document in 100 is held out, and none "
                "was.\nUse a larger corpus, or one with shorter documents."
            )
        return texts

    def _blocks(self) -> Iterator[list[Document]]:
        """Yield the training documents in blocks of at least `_CHARACTERS` characters."""
        return blocks(self._documents(0), characters=_CHARACTERS - 1)

    def _documents(self, part: int) -> Iterator[Document]:
        read = documents(self.recipe.corpus, field=self.recipe.field)
        return (document for document in read if part_of(document, _SHARES) == part)

    def _texts(self, block: Sequence[Document], seed: str) -> list[Features]:
        """Return the texts of some documents, shuffled."""
        rng, length, texts = random.Random(seed), self.recipe.length, []
        for document in block:
            ids = [token for line in self.encode(document) for token in line]
            for at in range(0, len(ids) - 1, length):
                text = ids[at : at + length]
                texts.append(divided(text, rng.randrange(1, len(text)), self.start, self.sentinel))
        rng.shuffle(texts)
        return texts


def _without_first(text: Features, count: int) -> Features:
    """Return a text without its first targets."""
    (row,) = text.rows
    rows = [replace(row, reads=row.reads[count:])]
    return replace(text, rows=rows, targets=text.targets[count:])


def encoder(tokenizer: Any) -> Encode:
    """Return a function from lines to token ids; it treats special tokens in a text as text."""
    settings = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}

    def encode(lines: Sequence[str]) -> list[list[int]]:
        ids: list[list[int]] = tokenizer(list(lines), **settings)["input_ids"]
        return ids

    return encode


def divided(text: list[int], cut: int, start: int, sentinel: int | None = None) -> Features:
    """Return the row of a text that is cut after `cut` tokens.

    Encoder: the text, then the sentinel. Decoder: start, sentinel, continuation without its last
    token; each position predicts the next (PPT's code; without a sentinel, Lester et al. 2021).
    """
    mark = [] if sentinel is None else [sentinel]
    targets = [*mark, *text[cut:]]
    row = TokenRow(
        [*text[:cut], *mark], reads=list(range(len(targets))), decoder=[start, *targets[:-1]]
    )
    return Features("", [row], targets)


_FREE = ("corpus", "out", "steps", "device", "token_budget", "log_every", "save_every")
"""Keys that may change before an adaptation is resumed. The corpus is compared by its content."""
Line = dict[str, float]
_State = tuple[dict[str, Tensor], dict[str, Any]]  # tensors, and plain data


def main(arguments: Sequence[str]) -> None:
    """Adapt one backbone, or resume; write its folder and print its figures.

    Raises:
        UserError: a name, key or value is wrong, or the folder is taken.
    """
    backbone, recipe = read(arguments)
    if leads_out(backbone.name):
        raise UserError(f"backbone.name={backbone.name}: expected the name of a folder.")
    out = Path(recipe.out or f"outputs/adapt/{backbone.name}_lm")
    if out.exists():
        raise UserError(f"out={out} is taken; give another folder, or remove it first.")
    try:
        figures = _run(backbone, recipe, out)
    except UserError as error:  # the stream of documents names the keys of a task
        raise UserError(str(error).replace("task.source.", "")) from error
    print(json.dumps({"folder": str(out), **figures}))


def read(arguments: Sequence[str]) -> tuple[PretrainedBackbone, Adaptation]:
    """Return the backbone and the recipe that a command line names.

    Raises:
        UserError: a name, key or value is wrong, or the backbone has no decoder.
    """
    keys = command.keys_of(Adaptation)
    name, overrides = command.overrides("adapt", __doc__, EXAMPLES, keys, arguments)
    name = name or "pocket_t5"
    if name not in (presets := options("backbone")):
        raise UserError(unknown("backbone", name, presets))
    defaults = {"backbone": OmegaConf.load(presets[name])}
    settings = command.merged("adapt", overrides, defaults)
    node = settings.pop("backbone")
    build.check({"backbone": node})
    recipe = command.settings("adapt", Adaptation, settings)
    backbone: PretrainedBackbone = build.build("backbone", node)
    if backbone.family != "seq2seq":
        raise UserError(
            f"backbone={backbone.name} is {backbone.family}; LM adaptation is for "
            "encoder-decoders: type backbone=t5_v1_1_base, or backbone=pocket_t5."
        )
    return backbone, recipe


def _run(backbone: PretrainedBackbone, recipe: Adaptation, out: Path) -> dict[str, Any]:
    """Train, write the folder and return its figures."""
    source = _source(backbone, recipe)
    held_out = source.held_out()
    backbone.load()
    trainer = Trainer(backbone, recipe, source, command.device(recipe.device))
    plan, file = _plan(backbone, recipe), out.with_name(f"{out.name}.state.safetensors")
    if saved := read_state(file, plan):
        trainer.resume(*saved)
        _LOG.info("resuming from step %d of %d", trainer.step, recipe.steps)
    before = saved[1]["before"] if saved else trainer.evaluate(held_out)
    _LOG.info("held out, before: %s", before)

    def save() -> None:
        tensors, plain = trainer.state()
        write_state(file, plan, tensors, {**plain, "before": before})

    trainer.train(save)
    figures = {"before": before, "after": trainer.evaluate(held_out)}
    facts = {"steps": trainer.step, "held_out": len(held_out), **figures}
    facts["seconds"] = round(trainer.seconds, 1)
    result = {"plan": plan, **facts, "versions": versions()}
    assert backbone.folder is not None
    copy = partial(tokenizers.copy, backbone.folder)
    save_folder(out, backbone.model, copy, result, trainer.log)
    file.unlink(missing_ok=True)
    return facts


def _source(backbone: PretrainedBackbone, recipe: Adaptation) -> Continuations:
    """Return what a backbone reads of the corpus."""
    tokenizer = backbone.tokenizer()
    marks, spans = mask_ids(tokenizer, 1) if recipe.sentinel else ([], True)
    if not spans:
        raise UserError(f"sentinel=true: backbone={backbone.name} has none; type sentinel=false.")
    return Continuations(recipe, encoder(tokenizer), decoder_start(backbone), *marks)


def _plan(backbone: PretrainedBackbone, recipe: Adaptation) -> dict[str, Any]:
    """Return all that decides the weights, and names for readers; no paths."""
    plan = {key: value for key, value in asdict(recipe).items() if key not in _FREE}
    return {
        "backbone": backbone.name,
        "weights": backbone.weights,
        "tokenizer": backbone.tokenizer_digest(),
        "corpus": Path(recipe.corpus).name,
        "corpus_digest": digest(recipe.corpus),
        **plan,
    }


class Trainer:
    """Training of a whole backbone, without dropout like the pre-training of T5 v1.1.

    Args:
        backbone: a loaded backbone in fp32.
        recipe: the settings.
        source: the texts.
        device: `cpu` or `cuda`.
    """

    def __init__(
        self, backbone: PretrainedBackbone, recipe: Adaptation, source: Continuations, device: str
    ):
        self.backbone, self.recipe, self.source, self.device = backbone, recipe, source, device
        backbone.model.to(device)
        self.learned: dict[str, nn.Parameter] = backbone.body(head=True)
        for parameter in self.learned.values():
            parameter.requires_grad_(True)
        self.optimizer = _optimizer(recipe, self.learned)
        self.step, self.place, self.seconds = 0, Place(), 0.0
        self.log: list[Line] = []
        self._losses: list[float] = []

    def train(self, save: Callable[[], None]) -> None:
        """Train to the last step; call `save` every `save_every` seconds.

        Raises:
            RunFailed: the loss is not finite.
        """
        texts = self.source.after(self.place)
        began, saved = time.monotonic() - self.seconds, time.monotonic()
        with meter(self.recipe.steps, self.step) as show:
            while self.step < self.recipe.steps:
                drawn = list(islice(texts, self.recipe.batch))
                loss, tokens = self._update([text for _, text in drawn])
                self.step, self.place = self.step + 1, drawn[-1][0]
                self.seconds = time.monotonic() - began
                self._note(loss)
                show(self.step, loss, "", None, tokens)
                if time.monotonic() - saved >= self.recipe.save_every:
                    save()
                    saved = time.monotonic()

    @torch.no_grad()
    def evaluate(self, texts: Sequence[Features]) -> dict[str, float]:
        """Return the mean loss per token, and the perplexity."""
        total = sum(float(self._losses_of(part).sum()) for part in self._passes(texts))
        loss = total / sum(len(text.targets) for text in texts)
        return {"loss": round(loss, 4), "perplexity": round(math.exp(loss), 4)}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the state that the next step depends on: tensors, and plain data."""
        tensors = {f"learned.{name}": p.detach() for name, p in self.learned.items()}
        names = list(self.learned)
        for number, moments in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{key}.{names[number]}": value for key, value in moments.items()}
        plain = {"step": self.step, "place": asdict(self.place), "seconds": self.seconds}
        return tensors, {**plain, "log": self.log, "losses": self._losses}

    @torch.no_grad()
    def resume(self, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> None:
        """Restore a state."""
        self.step, self.seconds = plain["step"], plain["seconds"]
        self.place, self.log = Place(**plain["place"]), list(plain["log"])
        self._losses = list(plain["losses"])
        for name, parameter in self.learned.items():
            parameter.copy_(tensors[f"learned.{name}"])
        moments: dict[int, dict[str, Tensor]] = {}
        numbers = {name: number for number, name in enumerate(self.learned)}
        for full in (name for name in tensors if name.startswith("optimizer.")):
            _, key, name = full.split(".", 2)
            moments.setdefault(numbers[name], {})[key] = tensors[full]
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": moments, "param_groups": groups})

    def _update(self, texts: Sequence[Features]) -> tuple[float, int]:
        """Take one step; return the mean loss per token, and the number of tokens."""
        total = sum(len(text.targets) for text in texts)
        losses = []
        for part in self._passes(texts):
            share = self._losses_of(part).sum() / total
            share.backward()  # type: ignore[no-untyped-call]
            losses.append(share.detach())
        loss = float(torch.stack(losses).sum())  # the host waits once
        if not math.isfinite(loss):
            raise RunFailed(f"loss is {loss} at step {self.step + 1}; try a smaller rate=NUMBER.")
        nn.utils.clip_grad_norm_(self.learned.values(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss, total + sum(text.tokens for text in texts)

    def _losses_of(self, texts: Sequence[Features]) -> Tensor:
        """Return the loss of each target token, `[K]`, in fp32."""
        batch = collate(texts, None, torch.device(self.device))
        assert batch.decoder_mask is not None
        inputs = BackboneInput(
            mask=batch.mask,
            lengths=batch.lengths,
            ids=batch.ids,
            decoder=DecoderInput(mask=batch.decoder_mask, ids=batch.decoder),
            logits_at=batch.reads,
        )
        with torch.autocast(self.device, torch.bfloat16, enabled=self.recipe.precision == "bf16"):
            logits = self.backbone.forward(inputs).logits
        assert logits is not None
        return functional.cross_entropy(logits.float(), batch.targets, reduction="none")

    def _passes(self, texts: Sequence[Features]) -> list[list[Features]]:
        """Group texts of like length into passes of at most `token_budget` padded tokens."""
        parts: list[list[Features]] = []
        for text in sorted(texts, key=lambda text: (text.tokens, len(text.targets))):
            if not parts or _padded([*parts[-1], text]) > self.recipe.token_budget:
                parts.append([])
            parts[-1].append(text)
        return parts

    def _note(self, loss: float) -> None:
        """Log the mean loss since the last line every `log_every` steps."""
        self._losses.append(loss)
        if self.step % self.recipe.log_every == 0:
            mean = sum(self._losses) / len(self._losses)
            self.log.append(
                {"step": self.step, "loss": round(mean, 4), "seconds": round(self.seconds, 1)}
            )
            self._losses = []
            _LOG.info("step %d of %d: loss %.4f", self.step, self.recipe.steps, mean)


def _padded(texts: Sequence[Features]) -> int:
    """Return the number of padded tokens of a pass, in encoder and decoder."""
    longest = max(text.tokens for text in texts) + max(len(text.targets) for text in texts)
    return len(texts) * longest


def _optimizer(recipe: Adaptation, learned: Mapping[str, nn.Parameter]) -> torch.optim.Optimizer:
    kind = torch.optim.AdamW if recipe.optimizer == "adamw" else torch.optim.Adafactor
    return kind(learned.values(), lr=recipe.rate, weight_decay=0.0)


def write_state(
    file: Path, plan: Mapping[str, Any], tensors: Mapping[str, Tensor], plain: Mapping[str, Any]
) -> None:
    """Replace the file atomically; `plan` holds the settings of the adaptation."""
    file.parent.mkdir(parents=True, exist_ok=True)
    files.draft(file, tensors, {"plan": json.dumps(plan), "state": json.dumps(plain)})()


def read_state(file: Path, plan: Mapping[str, Any]) -> _State | None:
    """Return tensors and plain data, or None if nothing was saved.

    Drafts of processes that were killed while they saved are removed.

    Raises:
        UserError: the file is damaged, or was saved with another plan.
    """
    for draft in file.parent.glob(f".{file.name}.*"):
        draft.unlink(missing_ok=True)
    if not file.is_file():
        return None
    tensors, header = files.read(file, "Remove it to start over.")
    try:
        before, plain = dict(json.loads(header["plan"])), dict(json.loads(header["state"]))
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file}: damaged (its header). Remove it to start over.") from error
    if changed := [key for key in plan if before.get(key) != plan[key]]:
        changes = ", ".join(f"{key} was {before.get(key)}, is {plan[key]}" for key in changed)
        raise UserError(
            f"{file}: saved with other settings ({changes}).\nUse those to resume, use another "
            "out=DIR, or remove the file to start over."
        )
    return tensors, plain


def save_folder(
    out: Path,
    model: Any,
    write_tokenizer: Callable[[Path], Any],
    result: dict[str, Any],
    log: list[Line],
) -> None:
    """Write the folder, complete or not at all, with the weights in their dtype.

    Raises:
        OSError: it cannot be written, as on a full disk; nothing is left.
    """
    part = out.with_name(f"{out.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        with named(part):
            part.mkdir(parents=True)
            _write_folder(part, model, write_tokenizer, result, log)
        if out.exists():
            out.rmdir()  # it was checked to be empty
        part.rename(out)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def _write_folder(
    part: Path,
    model: Any,
    write_tokenizer: Callable[[Path], Any],
    result: dict[str, Any],
    log: list[Line],
) -> None:
    from transformers.utils import logging

    logging.disable_progress_bar()
    model.cpu().save_pretrained(part)
    write_tokenizer(part)
    (part / "generation_config.json").unlink(missing_ok=True)  # no code reads it
    if log:
        with (part / "train_log.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(log[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(log)
    (part / "result.json").write_text(json.dumps(result, indent=2) + "\n")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that affect the weights."""
    import tokenizers
    import torch
    import transformers

    packages = (torch, transformers, tokenizers)
    found = {module.__name__: str(module.__version__) for module in packages}
    return {"python": platform.python_version(), **found}


if __name__ == "__main__":
    sys.exit(command.run(main, sys.argv[1:]))
