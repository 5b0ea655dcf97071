"""A finished run, loaded for prediction with the options of the command line."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.config import build, identity
from ptrun.config.explain import composed
from ptrun.config.overriding import gone, parsed, put
from ptrun.errors import UserError
from ptrun.folder import request
from ptrun.folder.find import Run, find
from ptrun.hardware.torch_engine import TorchEngine
from ptrun.method.base import Method
from ptrun.runs import saved_prompt
from ptrun.runs.finished import Finished, backbone_of, learned, recalled
from ptrun.runs.store import bound_to
from ptrun.runs.tuned_backbone import tuned_by
from ptrun.task.base import Task

_WHOLE = ("hardware", "data_dir", "outputs")  # keys that are composed, not set
_INSIDE = ("backbone.path", "start", "method.glove", "readout.tree", "task.vocabulary")


def ready(given: str, typed: Sequence[str]) -> Finished:
    """Return a finished run; `load` reads the backbone's weights later.

    Raises:
        UserError: the run is missing or unfinished, a key is not allowed, or a file that the run
            used is missing or has changed.
    """
    keys = {one: one.partition("=")[0] for one in typed}
    _check_keys(keys)
    outputs = [one.partition("=")[2] for one, key in keys.items() if key == "outputs"]
    run = find(given, "predict", Path(*outputs[-1:] or ["outputs"]).expanduser())
    if run.result.status != "finished":
        raise UserError(f"predict {run.folder}: this run failed ({run.result.reason}).")
    config = _config(run, keys)
    _check_method(run, config)
    backbone = _backbone(run, config, "backbone.path" in keys.values())
    tensors, found = learned(run.folder, run.result, backbone)
    task = _task(run, config, found)
    engine = build.build("hardware", config["hardware"], backbone)
    return Finished(
        *(run.folder, run.result, task, backbone, engine),
        *(config["method"], config["readout"], tensors),
    )


def _check_keys(keys: Mapping[str, str]) -> None:
    for one, key in keys.items():
        if "=" not in one:
            raise UserError(f"predict takes one run, but got {one} too. Options are KEY=VALUE.")
        if key in ("input", "output"):
            raise UserError(f"predict {one}: type --{key} {one.partition('=')[2]}.")
        if key not in (*_WHOLE, *_INSIDE) and not key.startswith("hardware."):
            allowed = ", ".join((*_WHOLE, "hardware.KEY", *_INSIDE))
            raise UserError(
                f"predict {one}: a finished run cannot change this. Allowed: {allowed}."
            )


def _config(run: Run, keys: Mapping[str, str]) -> dict[str, Any]:
    """Return the run's configuration with the options of the command line.

    Raises:
        UserError: the run has no configuration, a value is invalid, or the hardware cannot predict.
    """
    kept = request.read(run.folder)
    if kept is None:
        raise UserError(
            f"predict {run.folder}: an older version made this run, without its configuration "
            f"({request.FILE}). Type its command again with rerun=true."
        )
    whole = composed([one for one, key in keys.items() if key in _WHOLE]).config
    config = dict(kept.config)
    if "data_dir" in keys.values() or not config.get("data_dir"):
        config["data_dir"] = whole["data_dir"]
    if "hardware" in keys.values():
        config["hardware"] = {**whole["hardware"], **run.result.config["hardware"]}
    for one, key in keys.items():
        if key not in _WHOLE:
            put(config, key, parsed(one))
    build.check({"hardware": config["hardware"]})
    if build.target("hardware", config["hardware"]) is not TorchEngine:
        raise UserError(
            f"predict {run.folder}: hardware={kept.names['hardware']} has several processes, but "
            "predict runs in one. Type hardware=gpu or hardware=cpu."
        )
    return config


def _check_method(run: Run, config: Mapping[str, Any]) -> None:
    """Refuse a missing or changed file of the method."""
    node = config["method"]
    for key, place in gone(config):
        if key.startswith(("method.", "readout.")):
            form = "@FILE" if place.startswith("@") else "PATH"
            raise UserError(
                f"predict {run.folder}: {key}={place} is missing. Type {key}={form} with its "
                "current place."
            )
    method: type[Method] = build.target("method", node)
    parts = {"backbone": {}, "task": {}, "method": method.fingerprint_config(node)}
    own = identity.affecting({**parts, "readout": config["readout"]}, "", "")
    if any(own[group] != run.result.config[group] for group in ("method", "readout")):
        raise UserError(
            f"predict {run.folder}: a file of its method has changed. Type readout.tree=@FILE or "
            "method.glove=FILE with the original content."
        )


def _backbone(run: Run, config: Mapping[str, Any], typed: bool) -> PretrainedBackbone:
    """Return the backbone, with the weights that a start from another run tuned."""
    path = config["backbone"]["path"] if typed else None
    backbone = backbone_of(run.result, path)
    if "+" in run.result.manifest["backbone"]["weights"]:
        start = str(config["start"]).removeprefix("run:")
        folder = saved_prompt.find(start, Path(config["outputs"]), config["name"])
        backbone.tuned = tuned_by(folder, bound_to(backbone))
    return backbone


def _task(run: Run, config: Mapping[str, Any], found: Mapping[str, Any] | None) -> Task:
    """Return the task with the labels of the run.

    Raises:
        UserError: the run has no labels, or its vocabulary was read from other data.
    """
    node = config["task"]
    if "corpus" in (node.get("source") or {}):  # keeps the labels of the labeller
        node = {**run.result.config["task"], "source": {"pocket": node["name"]}}
    try:
        task = recalled(node, found, config["data_dir"])
    except UserError as error:
        raise UserError(f"predict {run.folder}: {error}") from error
    if node.get("vocabulary") and task.digest() != run.result.config["data"]:
        raise UserError(
            f"predict {run.folder}: task.vocabulary={node['vocabulary']} or the task's data have "
            "changed. Type task.vocabulary=FILE or data_dir=DIR with the original data."
        )
    return task
