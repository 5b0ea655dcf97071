"""The manifest of a finished run: what it was made with, and how its step was selected."""

import hashlib
import platform
import resource
import socket
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

from ptrun.hardware.device import faster
from ptrun.hub.repository import loaded
from ptrun.metrics import selection_bias
from ptrun.runs.examples import Part
from ptrun.runs.plan import Plan
from ptrun.runs.record import Execution
from ptrun.start.saved_prompt import fingerprint_of
from ptrun.start.spec import CONTINUE
from ptrun.task.dataset import MESSAGES
from ptrun.types import Example, Split, __version__


def facts(done: Execution, seconds: float) -> dict[str, Any]:
    """Return the manifest of a trained run."""
    planned, parts = done.planned, done.parts
    engine, frozen = planned.engine, not done.tuned
    goes_on, template = planned.start.kind == CONTINUE, {}
    if MESSAGES in planned.task.fields:  # a chat template writes conversations
        from ptrun.readout.chat import template_digest

        template["template"] = template_digest(planned.backbone, planned.readout.node)
    return {
        **software(),
        **machine(engine.device),
        # how it was computed: apart from the precision it changes rounding alone
        "precision": engine.precision,
        "quantization": engine.quantization,
        "faster_precision": faster(engine.precision, engine.device, engine.backbone.dtype),
        "ranks": engine.world.size,
        "nodes": list(dict.fromkeys(engine.world.each(socket.gethostname()))),
        "model_parallel": engine.world.model_parallel,
        "token_budget": engine.token_budget,
        "population": engine.population,
        "checkpointing": engine.checkpointing,
        "backbone": weights(
            planned.backbone, planned.backbone_path, seed=planned.seed, frozen=frozen
        ),
        **template,
        "data": {
            "digest": planned.content["data"],
            "commits": loaded(planned.task.repositories),
            **samples(done.split),
            "rows": {name: account.record() for name, account in planned.task.accounts.items()},
        },
        "task_version": planned.task.version,
        "own_code": planned.own_code,
        "start": planned.start_typed,
        "started_from": None if goes_on else done.started_from,
        "start_takes": planned.start.takes,
        "continued_from": done.started_from if goes_on else None,
        "prompt": fingerprint_of({part.name: part.method for part in parts}),
        "cost": _cost(done),
        "steps": max(part.member.step for part in parts),
        "skipped_steps": max(part.member.stepper.skipped for part in parts),
        "seconds": seconds,
        "evaluation_seconds": engine.speed.evaluating,  # of all runs that share the passes
        "tokens_per_second": engine.speed.per_second(),
        **({} if engine.graphs is None else {"passes": engine.graphs.record()}),
        **(_selection(planned, parts[0]) if len(parts) == 1 else {}),
        "parts": {part.name: _selection(planned, part) for part in parts if len(parts) > 1},
        "overlaps": done.overlaps.record(),
        **_signatures(planned.task, done.split),
        **_document(parts[0].method),
        **parts[0].method.record,
    }


def _cost(done: Execution) -> dict[str, Any]:
    """Return what the method costs: tokens added to a request, bytes, and forgetting."""
    size = sum(t.nbytes for method in done.methods for t in method.exported().values())
    lost = {"forgetting": done.losses} if done.losses else {}
    return {"tokens_added": done.added, "bytes": size, **lost}


def _signatures(task: Any, split: Split) -> dict[str, Any]:
    """Return how the metrics of test are computed, and those of dev if they differ."""
    if not hasattr(task, "signatures"):
        return {}
    test, dev = task.signatures(split.test), task.signatures(split.dev) if split.dev else {}
    differing = {f"dev_{name}": text for name, text in dev.items() if text != test.get(name)}
    return {"signatures": {**test, **differing}} if test or differing else {}


def _document(method: Any) -> dict[str, Any]:
    """Return the tokens of the document, and the vectors and bytes that stand for it."""
    document = getattr(method.readout, "document", None)
    if document is None:
        return {}
    tensors = [t for name, t in method.exported().items() if not name.startswith("readout.")]
    sizes = {"vectors": getattr(method, "length", 0), "bytes": sum(t.nbytes for t in tensors)}
    return {"document": {"tokens": len(document.ids), **sizes}}


def _selection(planned: Plan, part: Part) -> dict[str, Any]:
    """Return how the reported step was selected, and from how many evaluations."""
    member, split = part.member, part.split
    counts = {name: len(getattr(split, name)) for name in ("train", "dev", "test")}
    return {
        "best_step": member.best_step,
        "selected_by": member.selected_by,
        "candidates": len(member.history),
        **({} if planned.request.trial is None else {"abandoned": member.abandoned}),
        "selection_bias": _selection_bias(planned, part),
        "history": member.history,
        "answered": {**counts, "left_out": part.left_out},
    }


def _selection_bias(planned: Plan, part: Part) -> float | None:
    """Return the expected optimism of the best dev score, in points; None if unknown."""
    if part.member.selected_by != "metric":
        return None
    name, history = planned.task.metric, part.member.history
    scores = [row[name] for row in history if name in row]  # texts are not written each time
    dev = part.split.dev
    in_range = scores and all(0 <= score <= 100 for score in scores)
    return selection_bias(scores, len(dev)) if in_range and dev else None


# What a result was made with: versions, code, machine, weights, data.

_PACKAGES = ("torch", "transformers", "datasets", "hydra-core", "omegaconf", "safetensors")
_MAX_LISTED = 256  # ids


def software() -> dict[str, Any]:
    """Return the versions, and the commit of the code if it runs from a checkout."""
    versions = {"ptrun": __version__, "python": platform.python_version()}
    versions |= {package: version(package) for package in _PACKAGES}
    commit = _git("rev-parse", "HEAD")
    dirty = bool(_git("status", "--porcelain", "--untracked-files=no")) if commit else None
    return {"versions": versions, "git_commit": commit, "git_dirty": dirty}


def machine(device: str) -> dict[str, Any]:
    """Return the device, its name, and the peak memory of it or of this process in MiB."""
    import torch

    if device == "cuda":
        peak = torch.cuda.max_memory_allocated() / 2**20
        return {"device": device, "name": torch.cuda.get_device_name(), "peak_memory_mib": peak}
    # Linux has the KiB of this process; it inherits ru_maxrss, bytes on macOS, from a notebook
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.is_file() else []
    held = [int(line.split()[1]) for line in lines if line.startswith("VmHWM:")]
    held += [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]
    return {
        "device": device,
        "name": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "peak_memory_mib": held[0] / (2**20 if sys.platform == "darwin" else 2**10),
    }


def weights(backbone: Any, path: str | None, *, seed: int, frozen: bool) -> dict[str, Any]:
    """Return what identifies a backbone; `path` is its local folder, if one was given.

    `seed` is the run's. It draws a pooler that the files lack, unless a tuned one has its own.
    """
    untrained = backbone.architecture.pooler and not backbone.has_pooler
    pooler_seed = backbone.tuned.pooler_seed if backbone.tuned else seed
    return {
        "name": backbone.name,
        "weights": backbone.weights,
        "commit": backbone.commit,
        "path": path and str(Path(path).resolve()),
        "parameters": backbone.size(),
        "pooler_seed": pooler_seed if untrained else None,
        **({"dequantized_from": backbone.quantized_by} if backbone.quantized_by else {}),
        "frozen_verified": True if frozen else None,
    }


def samples(split: Split) -> dict[str, Any]:
    """Return which examples each part holds: their number, a hash of their ids, and short lists."""
    parts = {name: _ids(getattr(split, name)) for name in ("train", "dev", "test")}
    return {"origin": dict(split.origin), **parts}


def _ids(examples: Sequence[Example]) -> dict[str, Any]:
    hashed, names = hashlib.sha256(), (example.id for example in examples)
    for start in range(0, len(examples), _MAX_LISTED):
        hashed.update(("\n" * bool(start) + "\n".join(islice(names, _MAX_LISTED))).encode())
    short = len(examples) <= _MAX_LISTED
    listed = {"ids": [example.id for example in examples]} if short else {}
    return {"count": len(examples), "ids_hash": hashed.hexdigest()[:16], **listed}


def _git(*arguments: str) -> str | None:
    """Return the output of git in ptrun's own checkout; None if there is none."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
