"""Start from the prompt of another run: find it, read it, and copy it part by part.

A prompt that an encoder makes cannot be trained further without the encoder. The encoder is in the
other run's `state.safetensors`.
"""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from ptrun.backbone.weights import PREFIX, Classifier, Tuned
from ptrun.errors import UserError
from ptrun.folder import result
from ptrun.folder import tensors as files
from ptrun.folder.digest import PROMPT
from ptrun.folder.find import is_hash
from ptrun.folder.store import made_over, read_tensors, state_file
from ptrun.method.base import Method

Tensors = dict[str, Tensor]
_PROMPT = "prompt."


def find(typed: str, outputs: Path, name: str, key: str = "start") -> Path:
    """Return the folder of a run, given as a folder, an id below `outputs`, or its 8 digits.

    A run of the same `name` comes first. `key` is the option that names the run.
    """
    path = Path(typed).expanduser()
    if (path / PROMPT).is_file():
        return path
    if (outputs / name / typed / PROMPT).is_file():
        result.read_named(outputs / name / typed)
        return outputs / name / typed
    pattern = f"*-{typed}" if is_hash(typed) else path.name
    folders = sorted(file.parent for file in outputs.glob(f"*/{pattern}/{PROMPT}"))
    folders = [folder for folder in folders if folder.parent.name != result.RERUNS] or folders
    if not folders:
        raise UserError(
            f"{key}=run:{typed}: no finished run of this name has a {PROMPT}. Give a folder with "
            f"one, or a run id below {outputs}. (Sweeps keep tuned backbones with keep=weights.)"
        )
    if len(folders) > 1:
        raise UserError(
            f"{key}=run:{typed}: several runs match. Give one of {', '.join(map(str, folders))}"
        )
    result.read_named(folders[0])
    return folders[0]


def prompts(folder: Path, bound: Mapping[str, str]) -> dict[str, Tensors]:
    """Return the prompt tensors of a run by part, without its head."""
    tensors, _ = read_tensors(folder / PROMPT, bound)
    parts: dict[str, Tensors] = {}
    for full, tensor in tensors.items():
        part, _, name = full.rpartition("/")
        if name.startswith(_PROMPT):
            parts.setdefault(part, {})[name] = tensor
    if not parts:
        raise UserError(f"start=run:{folder}: its method learned no prompt. Give another run.")
    return parts


def digest(parts: Mapping[str, Tensors]) -> str:
    """Return a fingerprint of prompts by part."""
    return tensor_digest(
        (f"{part}/{name}", parts[part][name])
        for part in sorted(parts)
        for name in sorted(parts[part])
    )


def tensor_digest(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """Return 16 hexadecimal digits over the names, types, shapes and values of tensors."""
    hashed = hashlib.sha256()
    for name, tensor in tensors:
        hashed.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        bits = tensor.cpu().contiguous().flatten().view(torch.uint8)
        hashed.update(bits.numpy().tobytes())
    return hashed.hexdigest()[:16]


def fingerprint(folder: Path, bound: Mapping[str, str]) -> str:
    """Return the fingerprint of a finished run's prompt, which is the one that it recorded."""
    actual, done = digest(prompts(folder, bound)), result.read(folder)
    recorded = done.manifest.get("prompt") if done else None
    if recorded not in (None, actual):
        raise UserError(
            f"{folder / PROMPT}: its prompt is {actual}, but the run recorded {recorded}. Start "
            "from another run, or repeat that one with rerun=true."
        )
    return actual


def fingerprint_of(methods: Mapping[str, Method]) -> str | None:
    """Return the fingerprint of trained methods by part; None if they have no prompt."""
    parts = {
        part: {n: t for n, t in method.exported().items() if n.startswith(_PROMPT)}
        for part, method in methods.items()
    }
    return digest(parts) if any(parts.values()) else None


def follow(folder: Path, methods: Mapping[str, Method], bound: Mapping[str, str]) -> None:
    """Copy the prompts of another run into methods, matched by the name of the part."""
    saved = prompts(folder, bound)
    if set(saved) != set(methods):
        raise UserError(
            f"start=run:{folder}: that run learned the prompts {sorted(saved)}, this run learns "
            f"{sorted(methods)}. Start from a run with the same parts."
        )
    for part, method in methods.items():
        tensors = method.unfolded(saved[part]) or _with_encoder(folder, part, bound)
        check_fits(method, tensors, folder)
        with torch.no_grad():
            for name, parameter in prompt_of(method).items():
                parameter.copy_(tensors[name])


def _with_encoder(folder: Path, part: str, bound: Mapping[str, str]) -> Tensors:
    """Return the learned prompt tensors of the selected step, with those of the encoder."""
    file = state_file(folder, part)
    tensors = read_tensors(file, bound)[0] if file.is_file() else {}
    for prefix in (f"best.{_PROMPT}", f"learned.{_PROMPT}"):
        prompt = {n: t for n, t in tensors.items() if n.startswith(prefix)}
        if prompt:
            return {_PROMPT + n.removeprefix(prefix): t for n, t in prompt.items()}
    raise UserError(
        f"start=run:{folder}: {file.name} is missing, which has the encoder of the prompt.\nTrain "
        "it again with keep=state rerun=true, or without an encoder: "
        "method.reparameterization=embedding, method.prefix_kind=kv or method.encoder=plain."
    )


def prompt_of(method: Method) -> dict[str, Tensor]:
    """Return the learned parameters of a method's prompt, and its frozen vectors."""
    tensors = {**method.learned(), **dict(method.named_buffers())}
    return {n: t for n, t in tensors.items() if n.startswith(_PROMPT)}


def check_fits(method: Method, tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Refuse a prompt whose names or shapes are not those that a method learns."""
    parameters = prompt_of(method)
    if set(parameters) != set(tensors):
        theirs, ours = (", ".join(sorted(names)) or "no prompt" for names in (tensors, parameters))
        raise UserError(
            f"start=run:{folder}: that run learned {theirs}, this method learns {ours}. "
            "Start from a run of the same method, with the same encoder."
        )
    for name, parameter in parameters.items():
        if parameter.shape != tensors[name].shape:
            raise UserError(
                f"start=run:{folder}: the shape of {name} is {list(tensors[name].shape)} there and "
                f"{list(parameter.shape)} here. Give method.length and the like as in that run."
            )


# Start from a backbone that another run tuned: supplementary training.
#
# IDPG uses it for the rows that start from an MNLI model: `method=fine_tuning task=glue_mnli`, then
# `start=run:RUN` with any method and task. Prompt and head start at random. EFL's head starts from
# the head of that run, if one of its rows is entailment. Files made over a tuned backbone are bound
# to it: `weights` has its digest after `+`.

_HEAD = "readout."
_AGAIN = "Type the command of that run again with rerun=true, or start from another."


def tuned_by(folder: Path, bound: Mapping[str, str]) -> Tuned | None:
    """Return the backbone that a run tuned; None if it tuned none, or also learned a prompt."""
    file = folder / PROMPT
    with files.checked(file, _AGAIN) as (opened, header):
        names, made_with = sorted(opened.keys()), made_over(file, header)
    if not any(n.startswith(PREFIX) for n in names) or any(n.startswith("prompt.") for n in names):
        return None
    pretrained = made_with["weights"].partition("+")[0]  # tuning replaces all that it changed
    if {**made_with, "weights": pretrained} != dict(bound):
        raise UserError(
            f"start=run:{folder}: that run tuned {made_with['name']} ({made_with['weights']}), not "
            f"{bound['name']} ({bound['weights']}). Use that backbone, or another run."
        )
    files.hashes(file, _AGAIN)
    with safe_open(file, "pt") as opened:
        digest = tensor_digest((name, opened.get_tensor(name)) for name in names)
    if (done := result.read(folder)) is None:
        return Tuned(file, digest, None, None)
    # the head, if the run has one and recorded its labels
    labels, head = done.config.get("task", {}).get("labels"), None
    if labels and done.names.get("readout") == "head":
        parts = [part for part in ("linear", "dense") if f"{_HEAD}{part}.weight" in names]
        stored = {part: f"{_HEAD}{part}" for part in parts}
        pooler = done.config["readout"].get("pooler", "auto")
        head = Classifier(list(labels), stored, pooler, "that run's")
    return Tuned(file, digest, head, done.manifest.get("backbone", {}).get("pooler_seed"))
