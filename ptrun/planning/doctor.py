"""The checks of `ptrun doctor`: what this machine has, and what will not work on it."""

import os
import platform
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from ptrun.backbone.tokenizers import FILES
from ptrun.config import plain_yaml
from ptrun.config.paths import conf_dir
from ptrun.errors import UserError
from ptrun.folder import lease
from ptrun.hardware.device import free, why_no_gpu
from ptrun.hub.download import chosen
from ptrun.hub.repository import CONVERTED, Repository, failure
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
    made: tuple[Callable[[], Check], ...] = (
        versions, extras, devices, compiler, memory, cache, hub, data, outputs
    )  # fmt: skip
    return [check() for check in made]


def versions() -> Check:
    """Return the versions of ptrun, Python and the main packages."""
    own = f"ptrun {__version__}, python {platform.python_version()}"
    return Check("ok", "versions", ", ".join([own, *(f"{n} {version(n)}" for n in _BASE)]))


def extras() -> Check:
    """Return which optional packages are missing."""
    absent = [name for name in _EXTRAS if not _is_there(name)]
    if not absent:
        return Check("ok", "extras", "all optional packages are installed")
    says = "; ".join(f"{_EXTRAS[name][0]}: {_EXTRAS[name][1]}" for name in absent)
    names = ",".join(_EXTRAS[name][0] for name in absent)
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
    found = next((name for name in ("gcc", "clang", "cc") if shutil.which(name)), None)
    if found is None:
        return Check("note", "compiler", "no C compiler: no kernel of ptrun's own", "install gcc")
    triton = "with triton" if find_spec("triton") else "without triton"
    return Check("ok", "compiler", f"{found}, {triton}")


def memory() -> Check:
    """Return the free memory."""
    return Check("ok", "memory", f"{free('cpu') / 2**30:.1f} GiB free")


def cache() -> Check:
    """Return where hub files are kept, and whether it is writable."""
    from huggingface_hub import constants

    place = Path(constants.HF_HOME)
    there = next(folder for folder in (place, *place.parents) if folder.exists())
    room = shutil.disk_usage(there).free
    says = f"{place}, {room / 2**30:.0f} GiB free"
    if not os.access(there, os.W_OK):
        return Check("note", "hub cache", f"{says}; not writable", "HF_HOME=FOLDER ptrun ...")
    if room < _LITTLE:
        return Check("note", "hub cache", says, "HF_HOME=FOLDER on a larger disk")
    return Check("ok", "hub cache", says)


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
    room = shutil.disk_usage(place).free
    state: Literal["ok", "note"] = "note" if room < _LITTLE else "ok"
    says = f"{place} can be written and locked, {room / 2**30:.0f} GiB free"
    return Check(state, "outputs", says, "outputs=DIR on a larger disk" if state == "note" else "")


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
    own = backbone.architecture
    how = "read from a traced pass" if own.probed else f"the {own.name} family of ptrun"
    says = f"{own.library}, {backbone.shape.layers} layers, {how}"
    lines = [Check("ok", "backbone", f"{backbone.name}: {says}"), *_proof(proof, backbone)]
    if any(line.state == "bad" for line in lines):
        return lines
    reasons = grid.fitting(backbone, grid.task_of(["task=pocket_sentiment"]))
    good = [method for method, reason in reasons.items() if not reason]
    lines.append(Check("ok", "methods", ", ".join(good)))
    lines += [Check("note", name, "does not fit", why) for name, why in reasons.items() if why]
    return lines


def _proof(proof: Any, backbone: Any) -> list[Check]:
    """Return a line for each check of the proof."""
    own = backbone.architecture
    if own.relative or own.has_blank or own.attention:
        says = "its family has an attention of its own, which ptrun's tests compare"
        return [Check("ok", "proof", says)]
    lines = []
    for check in proof.prove(backbone):
        where = f", first in {check.where}" if check.where else ""
        says = f"{check.name} ({check.far:.0e}, at most {check.limit:.0e}{where})"
        remedy = "" if check.passed else "choose another backbone: ptrun list backbone"
        lines.append(Check("ok" if check.passed else "bad", "proof", says, remedy))
    return lines


# The checks of `ptrun doctor --hub`: what the repositories of all presets hold, and what differs.
#
# Only lists of files are asked for; nothing is downloaded.

_DATA = re.compile(r".*\.(parquet|jsonl|json|csv|tsv|txt|arrow)(\.gz)?")
_BYTES = (4, 2)  # of a parameter
_TOLERANCE = 0.1  # heads and buffers beside the counted parameters
_AT_ONCE = 8

Sizes = Mapping[str, int | None]


def hub_checks() -> list[Check]:
    """Return a check for each preset of the hub: backbones first, then tasks."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        says = "off, or it does not respond: no repository was asked"
        return [Check("bad", "hub", says, "HF_HUB_OFFLINE=0 ptrun doctor --hub, with a network")]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        models = pool.map(_backbone, *zip(*presets("backbone").items(), strict=True))
        data = pool.map(_task, *zip(*presets("task").items(), strict=True))
        return [*models, *data]


def presets(group: str) -> dict[str, dict[str, Any]]:
    """Return ptrun's own options of a group that the hub holds."""
    files = sorted((conf_dir() / group).glob("*.yaml"))
    nodes = {file.stem: plain_yaml.read(file) for file in files}
    places = {n: own if group == "backbone" else own.get("source", {}) for n, own in nodes.items()}
    return {name: node for name, node in nodes.items() if places[name].get("hub")}


def _backbone(name: str, node: Mapping[str, Any]) -> Check:
    """Return what the repository of a backbone holds."""
    repository = Repository("model", node["hub"], node["revision"])
    sizes = repository.listing()
    if isinstance(sizes, Exception):
        return _no_answer(name, repository, sizes)
    weights = chosen(sizes)
    size = sum(sizes[file] or 0 for file in weights)
    pickled = bool(weights) and weights[0].endswith(".bin")
    tokenizer = [file for file in FILES if file in sizes]
    form = ".bin, converted once" if pickled else "safetensors" if weights else "no weights"
    parts = [f"{len(weights)} {form}", f"{size / 1e9:.2f} GB", " ".join(tokenizer)]
    wrong = [] if weights else ["no weights that ptrun reads"]
    wrong += [] if tokenizer else [f"no tokenizer, expected one of {', '.join(FILES)}"]
    wrong += _wrong_size(size, node.get("parameters"))
    free = shutil.disk_usage(_existing(repository.snapshot)).free
    if (needed := size * (1 + pickled)) > free:
        wrong.append(f"{needed / 1e9:.1f} GB are needed, {free / 1e9:.1f} GB are free")
    return _line(name, repository, parts, wrong)


def _task(name: str, node: Mapping[str, Any]) -> Check:
    """Return what the repository of a task holds."""
    source = node["source"]
    repository = Repository("dataset", source["hub"], source.get("revision"))
    sizes = repository.listing()
    if isinstance(sizes, Exception):
        return _no_answer(name, repository, sizes)
    files = [file for file in sizes if _DATA.fullmatch(file)]
    kinds = sorted({file.rpartition(".")[2] for file in files})
    parts = [f"{len(files)} files of data ({', '.join(kinds) or 'none'})"]
    script = f"{repository.name.rpartition('/')[2]}.py"
    wrong = [f"{script} is a script; {CONVERTED} is read"] if script in sizes else []
    wrong += [] if files or script in sizes else ["no data"]
    subset = source.get("subset")
    if subset and files and not any(subset in file for file in files):
        wrong.append(f"no file of subset {subset}")
    elsewhere = node.get("sources") or {}  # of parts
    own = {split for part, split in node["splits"].items() if part not in elsewhere}
    splits = {*own, *(node.get("paper_splits") or {}).values()} - {None}
    for split in sorted(splits if files else ()):
        if not any(split[:3] in file for file in files):  # val is a validation split
            wrong.append(f"no file of split {split}")
    if any("/partial-" in file for file in files):
        wrong.append("the hub has converted only a part")
    return _line(name, repository, parts, wrong)


def _wrong_size(size: int, parameters: int | None) -> list[str]:
    """Return what is wrong with the size of the weights of so many parameters."""
    if not size or not parameters:
        return []
    if any(abs(size / (parameters * each) - 1) < _TOLERANCE for each in _BYTES):
        return []
    expected = " or ".join(f"{parameters * each / 1e9:.2f}" for each in _BYTES)
    return [f"expected {expected} GB for {parameters:,} parameters"]


def _existing(place: Path) -> Path:
    return next(one for one in (place, *place.parents) if one.exists())


def _line(name: str, repository: Repository, parts: list[str], wrong: list[str]) -> Check:
    where = f"{repository.name}@{(repository.current or '')[:8]}"
    says = ", ".join([where, *(part for part in parts if part)])
    return Check("note" if wrong else "ok", name, says, "; ".join(wrong))


def _no_answer(name: str, repository: Repository, error: Exception) -> Check:
    says, _, remedy = failure(repository, error).partition("\n")
    return Check("bad", name, says, remedy)
