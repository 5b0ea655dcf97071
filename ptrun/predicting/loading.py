"""A finished run made ready to answer, with what is typed over what it was asked for."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.config import build, identity
from ptrun.config.explain import composed
from ptrun.config.overriding import gone, parsed, put
from ptrun.errors import UserError
from ptrun.hardware.torch_engine import TorchEngine
from ptrun.method.base import Method
from ptrun.run import request, saved_prompt
from ptrun.run.find import Run, find
from ptrun.run.finished import Finished, backbone_of, learned, recalled
from ptrun.run.store import bound_to
from ptrun.run.tuned_backbone import tuned_by
from ptrun.task.base import Task

_WHOLE = ("hardware", "data_dir", "outputs")  # said to the root of a configuration
_INSIDE = ("backbone.path", "start", "method.glove", "method.pattern", "task.vocabulary")


def ready(given: str, typed: Sequence[str]) -> Finished:
    """Return a finished run, its backbone's weights not read yet.

    Raises:
        UserError: there is no such run, it has not finished, a key is not to be typed here, or what
            it was made with is gone or another.
    """
    keys = {one: one.partition("=")[0] for one in typed}
    _check_keys(keys)
    outputs = [one.partition("=")[2] for one, key in keys.items() if key == "outputs"]
    run = find(given, "predict", Path(*outputs[-1:] or ["outputs"]).expanduser())
    if run.result.status != "finished":
        raise UserError(f"predict {run.folder}: this run failed ({run.result.reason}).")
    config = _asked(run, keys)
    _check_method(run, config)
    backbone = _backbone(run, config, "backbone.path" in keys.values())
    tensors, found = learned(run.folder, run.result, backbone)
    task = _task(run, config, found)
    engine = build.build(config["hardware"], backbone)
    return Finished(run.folder, run.result, task, backbone, engine, config["method"], tensors)


def _check_keys(keys: Mapping[str, str]) -> None:
    for one, key in keys.items():
        if "=" not in one:
            raise UserError(f"predict takes one run, got {one} too; options are KEY=VALUE.")
        if key in ("input", "output"):
            raise UserError(f"predict {one}: type --{key} {one.partition('=')[2]}.")
        if key not in (*_WHOLE, *_INSIDE) and not key.startswith("hardware."):
            allowed = ", ".join((*_WHOLE, "hardware.KEY", *_INSIDE))
            raise UserError(
                f"predict {one}: the run is done, and answers as it was learned; to be typed here "
                f"are {allowed}."
            )


def _asked(run: Run, keys: Mapping[str, str]) -> dict[str, Any]:
    """Return what a run was asked for, with what is typed now.

    Raises:
        UserError: the run does not tell, a value is not readable, or its hardware does not answer.
    """
    kept = request.read(run.folder)
    if kept is None:
        raise UserError(
            f"predict {run.folder}: made before runs kept what they were asked for "
            f"({request.FILE}); type its command again with rerun=true."
        )
    whole = composed([one for one, key in keys.items() if key in _WHOLE]).config
    config = dict(kept.config)
    if "data_dir" in keys.values() or not config.get("data_dir"):
        config["data_dir"] = whole["data_dir"]
    if "hardware" in keys.values():
        config["hardware"] = whole["hardware"]
    for one, key in keys.items():
        if key not in _WHOLE:
            put(config, key, parsed(one))
    build.check({"hardware": config["hardware"]})
    if build.target(config["hardware"]) is not TorchEngine:
        raise UserError(
            f"predict {run.folder}: it ran on several processes (hardware="
            f"{kept.names['hardware']}), one answers; type hardware=gpu or hardware=cpu."
        )
    return config


def _check_method(run: Run, config: Mapping[str, Any]) -> None:
    """Refuse where a file that the method reads is gone, or has another content.

    Raises:
        UserError: which, and what to type.
    """
    node = config["method"]
    for key, place in gone(config):
        if key.startswith("method."):
            raise UserError(
                f"predict {run.folder}: gone from here: {key}={place}; type {key}="
                f"{'@FILE' if place.startswith('@') else 'PATH'}, where it is now."
            )
    made: type[Method] = build.target(node)  # type: ignore[assignment]
    parts = {"backbone": {}, "task": {}, "method": made.fingerprint_config(node)}
    if identity.affecting(parts, "", "")["method"] != run.result.config["method"]:
        raise UserError(
            f"predict {run.folder}: a file that its method reads has another content now; type "
            "method.pattern=@FILE or method.glove=FILE, as it was."
        )


def _backbone(run: Run, config: Mapping[str, Any], typed: bool) -> PretrainedBackbone:
    """Return the backbone; as another run tuned it, where this one began so."""
    path = config["backbone"]["path"] if typed else None
    backbone = backbone_of(run.result, path)
    if "+" in run.result.manifest["backbone"]["weights"]:
        start = str(config["start"]).removeprefix("run:")
        folder = saved_prompt.find(start, Path(config["outputs"]), config["name"])
        backbone.tuned = tuned_by(folder, bound_to(backbone))
    return backbone


def _task(run: Run, config: Mapping[str, Any], found: Mapping[str, Any] | None) -> Task:
    """Return the task, its labels as they were learned.

    Raises:
        UserError: they are not kept, or the words it may answer were read from other data.
    """
    node = config["task"]
    if "corpus" in (node.get("source") or {}):  # with the labels of what labelled it
        node = {**run.result.config["task"], "source": {"pocket": node["name"]}}
    try:
        task = recalled(node, found, config["data_dir"])
    except UserError as error:
        raise UserError(f"predict {run.folder}: {error}") from error
    if node.get("vocabulary") and task.digest() != run.result.config["data"]:
        raise UserError(
            f"predict {run.folder}: task.vocabulary={node['vocabulary']} or the task's data are "
            "not those of the run; type task.vocabulary=FILE or data_dir=DIR, as they were."
        )
    return task
