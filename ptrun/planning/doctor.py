"""The checks of `ptrun doctor`: what this machine has, and what will not work on it."""

import os
import platform
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from ptrun.errors import UserError
from ptrun.folder import lease
from ptrun.hardware.device import free, why_no_gpu
from ptrun.types import __version__

_EXTRAS = {  # package: the extra, and what it is for
    "peft": ("peft", "method=peft, ptrun export"),
    "sentencepiece": ("sentencepiece", "T5, mT5 and ALBERT from the hub"),
    "deepspeed": ("deepspeed", "hardware=zero1, zero1_mp4"),
    "optuna": ("search", "ptrun search"),
    "submitit": ("slurm", "sweep.on=slurm"),
    "jieba": ("zh", "CPM-2"),
    "wandb": ("wandb", "tracking=wandb"),
}
_LITTLE = 5 * 2**30  # bytes of disk
_BASE = ("torch", "transformers", "datasets", "hydra-core")


@dataclass(frozen=True)
class Check:
    """One line of the report; `remedy` says what to type."""

    state: Literal["ok", "note", "bad"]
    name: str
    says: str
    remedy: str = ""


def checks() -> list[Check]:
    """Return all checks, in the order of the report."""
    every = versions, extras, devices, compiler, memory, cache, hub, data, outputs
    return [check() for check in every]


def versions() -> Check:
    """Return the versions of ptrun, Python and the main packages."""
    own = f"ptrun {__version__}, python {platform.python_version()}"
    return Check("ok", "versions", ", ".join([own, *(f"{n} {version(n)}" for n in _BASE)]))


def extras() -> Check:
    """Return which optional packages are missing."""
    absent = [extra for package, extra in _EXTRAS.items() if not _is_there(package)]
    if not absent:
        return Check("ok", "extras", "all optional packages are installed")
    says = "; ".join(f"{extra}: {use}" for extra, use in absent)
    names = ",".join(extra for extra, _ in absent)
    return Check("note", "extras", f"not installed: {says}", f"pip install 'ptrun[{names}]'")


def _is_there(package: str) -> bool:
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False


def devices() -> Check:
    """Return the GPUs, or the cores."""
    import torch

    if not torch.cuda.is_available():
        cores = f"CPU, {torch.get_num_threads()} threads; no GPU: {why_no_gpu()}"
        return Check("note", "devices", cores, "use small backbones, or ptrun plan for a GPU")
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return Check("ok", "devices", ", ".join(names))


def compiler() -> Check:
    """Return whether Triton can compile the attention kernel."""
    name = next((name for name in ("gcc", "clang", "cc") if shutil.which(name)), None)
    if name is None:
        return Check("note", "compiler", "no C compiler: no kernel of ptrun's own", "install gcc")
    triton = "with triton" if find_spec("triton") else "without triton"
    return Check("ok", "compiler", f"{name}, {triton}")


def memory() -> Check:
    """Return the free memory."""
    return Check("ok", "memory", f"{free('cpu') / 2**30:.1f} GiB free")


def cache() -> Check:
    """Return where hub files are kept, and whether it is writable."""
    from huggingface_hub import constants

    place = Path(constants.HF_HOME)
    there = next(folder for folder in (place, *place.parents) if folder.exists())
    if not os.access(there, os.W_OK):
        return Check("note", "hub cache", f"{place} not writable", "HF_HOME=FOLDER ptrun ...")
    return _disk("hub cache", f"{place}", there, "HF_HOME=FOLDER")


def _disk(name: str, says: str, place: Path, option: str) -> Check:
    room = shutil.disk_usage(place).free
    says = f"{says}, {room / 2**30:.0f} GiB free"
    if room < _LITTLE:
        return Check("note", name, says, f"{option} on a larger disk")
    return Check("ok", name, says)


def hub() -> Check:
    """Return whether the hub answers."""
    from huggingface_hub import constants

    from ptrun.hub.repository import go_offline_if_unreachable

    go_offline_if_unreachable()
    remedy = "use backbone.path=FOLDER and data_dir=DIR; pocket models and tasks need no hub"
    if constants.HF_HUB_OFFLINE or os.environ.get("HF_HUB_OFFLINE"):
        return Check("note", "hub", "offline: only cached models and data", remedy)
    return Check("ok", "hub", constants.ENDPOINT)


def data() -> Check:
    """Return the folder of local data."""
    place = os.environ.get("PTRUN_DATA")
    if place is None:
        says = "PTRUN_DATA is not set: tasks are read from the hub"
        return Check("note", "data", says, "data_dir=DIR, or export PTRUN_DATA=DIR")
    if not Path(place).is_dir():
        return Check("bad", "data", f"PTRUN_DATA={place} is no folder", "export PTRUN_DATA=DIR")
    return Check("ok", "data", place)


def outputs() -> Check:
    """Return whether runs can be written and locked in this folder."""
    place = Path.cwd()
    try:
        with tempfile.TemporaryDirectory(dir=place) as folder, lease.held(Path(folder) / "run"):
            pass
    except (OSError, UserError) as error:
        return Check("bad", "outputs", f"{place}: {error}", "cd to another folder, or outputs=DIR")
    return _disk("outputs", f"{place} can be written and locked", place, "outputs=DIR")


# The checks of `ptrun doctor backbone=NAME`: whether prompts work in a model, and which methods.


def backbone_checks(overrides: Sequence[str]) -> list[Check]:
    """Return the checks of a backbone's weights, and which methods work with it.

    Raises:
        UserError: an override is wrong, or the backbone cannot be read.
    """
    from ptrun.backbone import proof
    from ptrun.config.compose import compose_run
    from ptrun.planning import grid

    backbone = compose_run(overrides).components()["backbone"].build()
    backbone.read_weights()
    family = backbone.architecture
    how = "read from a traced pass" if family.probed else f"the {family.name} family of ptrun"
    says = f"{family.library}, {backbone.shape.layers} layers, {how}"
    lines = [Check("ok", "backbone", f"{backbone.name}: {says}")]
    # 1. Whether prompts work in it
    if family.relative or family.has_blank or family.attention:
        says = "its family has an attention of its own, which ptrun's tests compare"
        lines.append(Check("ok", "proof", says))
    else:
        for check in proof.prove(backbone):
            where = f", first in {check.where}" if check.where else ""
            says = f"{check.name} ({check.far:.0e}, at most {check.limit:.0e}{where})"
            remedy = "" if check.passed else "choose another backbone: ptrun list backbone"
            lines.append(Check("ok" if check.passed else "bad", "proof", says, remedy))
    if any(line.state == "bad" for line in lines):
        return lines
    # 2. Which methods work with it
    reasons = grid.fitting(backbone, grid.task_of(["task=pocket_sentiment"]))
    good = [method for method, reason in reasons.items() if not reason]
    lines.append(Check("ok", "methods", ", ".join(good)))
    lines += [Check("note", name, "does not fit", why) for name, why in reasons.items() if why]
    return lines
