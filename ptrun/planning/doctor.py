"""The checks of `ptrun doctor`: what this machine has, and what will not work on it."""

import os
import platform
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
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


def checks() -> Iterator[Check]:
    """Yield all checks, in the order of the report."""
    import torch
    from huggingface_hub import constants

    from ptrun.hub.repository import go_offline_if_unreachable

    # 1. Packages
    versions = [f"ptrun {__version__}, python {platform.python_version()}"]
    yield Check("ok", "versions", ", ".join([*versions, *(f"{n} {version(n)}" for n in _BASE)]))
    if absent := [extra for package, extra in _EXTRAS.items() if find_spec(package) is None]:
        says = "; ".join(f"{extra}: {use}" for extra, use in absent)
        remedy = f"pip install 'ptrun[{','.join(extra for extra, _ in absent)}]'"
        yield Check("note", "extras", f"not installed: {says}", remedy)
    else:
        yield Check("ok", "extras", "all optional packages are installed")
    # 2. What computes: GPUs or cores, a compiler for the attention kernel, memory
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        yield Check("ok", "devices", ", ".join(names))
    else:
        says = f"CPU, {torch.get_num_threads()} threads; no GPU: {why_no_gpu()}"
        yield Check("note", "devices", says, "use small backbones, or ptrun plan for a GPU")
    if compiler := next((name for name in ("gcc", "clang", "cc") if shutil.which(name)), None):
        triton = "with triton" if find_spec("triton") else "without triton"
        yield Check("ok", "compiler", f"{compiler}, {triton}")
    else:
        yield Check("note", "compiler", "no C compiler: no kernel of ptrun's own", "install gcc")
    yield Check("ok", "memory", f"{free('cpu') / 2**30:.1f} GiB free")
    # 3. The hub, and its files
    place = Path(constants.HF_HOME)
    there = next(folder for folder in (place, *place.parents) if folder.exists())
    if os.access(there, os.W_OK):
        yield _disk("hub cache", f"{place}", there, "HF_HOME=FOLDER")
    else:
        yield Check("note", "hub cache", f"{place} not writable", "HF_HOME=FOLDER ptrun ...")
    go_offline_if_unreachable()
    if constants.HF_HUB_OFFLINE or os.environ.get("HF_HUB_OFFLINE"):
        remedy = "use backbone.path=FOLDER and data_dir=DIR; pocket models and tasks need no hub"
        yield Check("note", "hub", "offline: only cached models and data", remedy)
    else:
        yield Check("ok", "hub", constants.ENDPOINT)
    # 4. The folders of local data and of runs, which are written and locked
    data, folder = os.environ.get("PTRUN_DATA"), Path.cwd()
    if data is None:
        says = "PTRUN_DATA is not set: tasks are read from the hub"
        yield Check("note", "data", says, "data_dir=DIR, or export PTRUN_DATA=DIR")
    elif Path(data).is_dir():
        yield Check("ok", "data", data)
    else:
        yield Check("bad", "data", f"PTRUN_DATA={data} is no folder", "export PTRUN_DATA=DIR")
    try:
        with tempfile.TemporaryDirectory(dir=folder) as draft, lease.held(Path(draft) / "run"):
            pass
        yield _disk("outputs", f"{folder} can be written and locked", folder, "outputs=DIR")
    except (OSError, UserError) as error:
        yield Check("bad", "outputs", f"{folder}: {error}", "cd to another folder, or outputs=DIR")


def _disk(name: str, says: str, place: Path, option: str) -> Check:
    room = shutil.disk_usage(place).free
    says = f"{says}, {room / 2**30:.0f} GiB free"
    if room < _LITTLE:
        return Check("note", name, says, f"{option} on a larger disk")
    return Check("ok", name, says)


# The checks of `ptrun doctor backbone=NAME`: whether prompts work in a model, and which methods.


def backbone_checks(overrides: Sequence[str]) -> list[Check]:
    """Return the checks of a backbone's weights, and which methods work with it."""
    from ptrun.backbone import proof
    from ptrun.backbone.weights import dequantization
    from ptrun.config.compose import compose_run
    from ptrun.planning import grid

    backbone = compose_run(overrides).components()["backbone"].build()
    backbone.read_weights()
    family = backbone.architecture
    how = "read from a traced pass" if family.probed else f"the {family.name} family of ptrun"
    how = f"closed layers: {family.bars_prefixes}" if family.closed else how
    if whole := backbone.config.get("text_of"):
        how = f"the text part of a {whole} model, {how}"
    says = f"{family.library}, {backbone.shape.layers} layers, {how}"
    lines = [Check("ok", "backbone", f"{backbone.name}: {says}")]
    if backbone.quantized_by:
        lines.append(Check("ok", "weights", dequantization(backbone.folder)))
    # 1. Whether prompts work in it
    if family.relative or family.has_blank or (family.attention and not family.closed):
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
