"""LM adaptation of an encoder-decoder (Lester et al. 2021, section 3.1), for `ptrun adapt`."""

import logging
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.config import build, user_files
from ptrun.config.paths import leads_out, options
from ptrun.config.suggest import unknown
from ptrun.errors import UserError
from ptrun.pretrain import folder
from ptrun.pretrain.adaptation import state
from ptrun.pretrain.adaptation.continuations import Continuations, encoder
from ptrun.pretrain.adaptation.recipe import Adaptation
from ptrun.pretrain.adaptation.training import Trainer
from ptrun.prompt.spelling import mask_ids
from ptrun.readout.head import decoder_start
from ptrun.task.ppt.documents import digest
from ptrun.tokenizer import tokenizers

_LOG = logging.getLogger(__name__)
_TARGET = f"{Adaptation.__module__}.Adaptation"
_FREE = ("corpus", "out", "steps", "device", "token_budget", "log_every", "save_every")
"""Keys that may change before an adaptation is resumed. The corpus is compared by its content."""


def adapt(arguments: Sequence[str]) -> dict[str, Any]:
    """Adapt one backbone, or resume, write its folder, and return its figures.

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
    return {"folder": str(out), **figures}


def read(arguments: Sequence[str]) -> tuple[PretrainedBackbone, Adaptation]:
    """Return the backbone and the recipe that a command line names.

    Raises:
        UserError: a name, key or value is wrong, or the backbone has no decoder.
    """
    named = [a.removeprefix("backbone=") for a in arguments if a.startswith("backbone=")]
    name = named[-1] if named else "pocket_t5"
    if name not in (known := options("backbone")):
        raise UserError(unknown("backbone", name, known))
    try:
        given = OmegaConf.from_dotlist([a for a in arguments if not a.startswith("backbone=")])
        own = OmegaConf.merge(user_files.load(known[name]), given.pop("backbone", {}))
    except OmegaConfBaseException as error:
        raise UserError(f"adapt: {str(error).splitlines()[0]}") from error
    with user_files.without_environment():
        nodes = {
            "backbone": build.plain(own),  # type: ignore[arg-type]
            "adapt": {"_target_": _TARGET, **build.plain(given)},
        }
    build.check(nodes)
    backbone: PretrainedBackbone = build.build("backbone", nodes["backbone"])
    if backbone.family != "seq2seq":
        raise UserError(
            f"backbone={backbone.name} is {backbone.family}; LM adaptation is for "
            "encoder-decoders: type backbone=t5_v1_1_base, or backbone=pocket_t5."
        )
    return backbone, build.build("adapt", nodes["adapt"])


def _run(backbone: PretrainedBackbone, recipe: Adaptation, out: Path) -> dict[str, Any]:
    """Train, write the folder and return its figures."""
    source = _source(backbone, recipe)
    held_out = source.held_out()
    backbone.load()
    trainer = Trainer(backbone, recipe, source, _device(recipe.device))
    plan, file = _plan(backbone, recipe), out.with_name(f"{out.name}.state.safetensors")
    if saved := state.read(file, plan):
        trainer.resume(*saved)
        _LOG.info("resuming from step %d of %d", trainer.step, recipe.steps)
    before = saved[1]["before"] if saved else trainer.evaluate(held_out)
    _LOG.info("held out, before: %s", before)

    def save() -> None:
        tensors, plain = trainer.state()
        state.write(file, plan, tensors, {**plain, "before": before})

    trainer.train(save)
    figures = {"before": before, "after": trainer.evaluate(held_out)}
    facts = {"steps": trainer.step, "held_out": len(held_out), **figures}
    facts["seconds"] = round(trainer.seconds, 1)
    result = {"plan": plan, **facts, "versions": folder.versions()}
    assert backbone.folder is not None
    copy = partial(tokenizers.copy, backbone.folder)
    folder.save(out, backbone.model, copy, result, trainer.log)
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


def _device(wanted: str) -> str:
    """Return the device that `auto` stands for, or the requested one."""
    import torch

    cuda = torch.cuda.is_available()
    if wanted == "cuda" and not cuda:
        raise UserError("device=cuda: this machine has no CUDA; type device=cpu.")
    return "cuda" if cuda and wanted != "cpu" else "cpu"
