"""A prompt that begins as another run's: found, read, and put in place part by part.

A method whose prompt comes out of an encoder cannot learn on from what the encoder put out: it
needs the encoder, which the other run's `state.safetensors` holds.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from ptrun.errors import UserError
from ptrun.method.base import Method
from ptrun.run import result
from ptrun.run.store import read_tensors, state_file

Tensors = dict[str, Tensor]
FILE = "prompt.safetensors"
_PROMPT = "prompt."


def find(given: str, outputs: Path, name: str, key: str = "start") -> Path:
    """Return the folder of a run, given as folder or as id below `outputs`, own name first.

    `key` is the one that asks for it.

    Raises:
        UserError: there is none with a prompt, or several names have it.
    """
    there = Path(given).expanduser()
    own = [there, outputs / name / given]
    found = next((folder for folder in own if (folder / FILE).is_file()), None)
    if found:
        return found
    known = sorted(file.parent for file in outputs.glob(f"*/{there.name}/{FILE}"))
    others = [folder for folder in known if folder.parent.name != result.RERUNS] or known
    if len(others) == 1:
        return others[0]
    if others:
        raise UserError(f"{key}=run:{given}: several runs; give one: {', '.join(map(str, others))}")
    raise UserError(
        f"{key}=run:{given}: no finished run there; give a folder with {FILE}, or a run id below "
        f"{outputs}."
    )


def prompts(folder: Path, bound: Mapping[str, str]) -> dict[str, Tensors]:
    """Return what a run learned as prompt, part by part; heads stay behind.

    Raises:
        UserError: it was made with another backbone, or has no prompt.
    """
    tensors, _ = read_tensors(folder / FILE, bound)
    parts: dict[str, Tensors] = {}
    for full, tensor in tensors.items():
        part, _, name = full.rpartition("/")
        if name.startswith(_PROMPT):
            parts.setdefault(part, {})[name] = tensor
    if not parts:
        raise UserError(f"start=run:{folder}: its method learned no prompt.")
    return parts


def digest(parts: Mapping[str, Tensors]) -> str:
    """Return what identifies prompts: 16 hex over names, forms and values."""
    hashed = hashlib.sha256()
    for part, tensors in sorted(parts.items()):
        for name, tensor in sorted(tensors.items()):
            hashed.update(f"{part}/{name} {tensor.dtype} {list(tensor.shape)}".encode())
            hashed.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return hashed.hexdigest()[:16]


def fingerprint(folder: Path, bound: Mapping[str, str]) -> str:
    """Return what identifies a finished run's prompt, as its result has it.

    Raises:
        UserError: as `prompts`, or the file holds another prompt than the run left.
    """
    found, done = digest(prompts(folder, bound)), result.read(folder)
    told = done.manifest.get("prompt") if done else None
    if told not in (None, found):
        raise UserError(
            f"{folder / FILE}: its prompt is {found}, but the run left {told}; start from "
            "another run, or repeat that one with rerun=true."
        )
    return found


def fingerprint_of(methods: Mapping[str, Method]) -> str | None:
    """Return the same of methods that were trained, by part; None where they have no prompt."""
    parts = {
        part: {n: t for n, t in method.exported().items() if n.startswith(_PROMPT)}
        for part, method in methods.items()
    }
    return digest(parts) if any(parts.values()) else None


def follow(folder: Path, methods: Mapping[str, Method], bound: Mapping[str, str]) -> None:
    """Put another run's prompts in place, each part's in the part of its name.

    Raises:
        UserError: parts, names or shapes differ, or a prompt was folded and its encoder is gone.
    """
    there = prompts(folder, bound)
    if set(there) != set(methods):
        raise UserError(
            f"start=run:{folder}: it learned {_parts(there)}, this run {_parts(methods)}; "
            "start from a run with the same parts."
        )
    for part, method in methods.items():
        tensors = method.unfolded(there[part]) or _encoder(folder, part, bound)
        _copy(method, tensors, folder)


def _parts(parts: Mapping[str, object]) -> str:
    return "one prompt" if set(parts) == {""} else f"one for each of {', '.join(sorted(parts))}"


def _encoder(folder: Path, part: str, bound: Mapping[str, str]) -> Tensors:
    """Return the learned tensors of a prompt's selected step, encoder and all."""
    file = state_file(folder, part)
    tensors = read_tensors(file, bound)[0] if file.is_file() else {}
    for start in (f"best.{_PROMPT}", f"learned.{_PROMPT}"):
        own = {n: t for n, t in tensors.items() if n.startswith(start)}
        if own:
            return {_PROMPT + n.removeprefix(start): t for n, t in own.items()}
    raise UserError(
        f"start=run:{folder}: {file.name} is gone, and a folded prompt does not tell the encoder "
        "that made it;\nlearn it on without one: method.reparameterization=embedding, "
        "method.prefix_kind=kv or method.encoder=plain."
    )


def prompt_of(method: Method) -> dict[str, nn.Parameter]:
    """Return the learned tensors of a method's prompt."""
    return {n: p for n, p in method.learned().items() if n.startswith(_PROMPT)}


def check_fits(method: Method, tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Refuse a prompt that is not of the form that a method learns.

    Raises:
        UserError: names or shapes differ.
    """
    own = prompt_of(method)
    if set(own) != set(tensors):
        raise UserError(
            f"start=run:{folder}: it has {_names(tensors)}, this method learns {_names(own)}; "
            "start from a run of the same method, with the same encoder."
        )
    for name, parameter in own.items():
        if parameter.shape != tensors[name].shape:
            raise UserError(
                f"start=run:{folder}: its {name} is {list(tensors[name].shape)}, here it is "
                f"{list(parameter.shape)}; give method.length and the like as that run has them."
            )


def _copy(method: Method, tensors: Mapping[str, Tensor], folder: Path) -> None:
    check_fits(method, tensors, folder)
    with torch.no_grad():
        for name, parameter in prompt_of(method).items():
            parameter.copy_(tensors[name])


def _names(tensors: Mapping[str, object]) -> str:
    return ", ".join(sorted(tensors)) or "no prompt"
