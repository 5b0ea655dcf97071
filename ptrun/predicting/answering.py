"""A finished run that predicts, loaded with the options of a command line; what an answer holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ptrun.config import build, identity
from ptrun.config.components import TARGET
from ptrun.config.compose import compose_run
from ptrun.config.overriding import gone, parsed, put
from ptrun.errors import UserError
from ptrun.folder import request
from ptrun.folder.find import RunFolder, find
from ptrun.folder.store import bound_to
from ptrun.hardware.torch_engine import TorchEngine
from ptrun.method.base import Method
from ptrun.predicting.rows import Question
from ptrun.runs.finished import Finished, backbone_of, learned, recalled
from ptrun.start import saved_prompt
from ptrun.start.saved_prompt import tuned_by
from ptrun.task.dataset import Task
from ptrun.types import Prediction


@dataclass(frozen=True)
class Detail:
    """What an answer holds beside the prediction.

    Args:
        probabilities: those of all labels.
        top: the number of likeliest labels, with their probabilities.
        raw: whether a table has texts as they are that a spreadsheet would run as formulas.
        most: the most tokens of a written text; None is the run's.
    """

    probabilities: bool = False
    top: int | None = None
    raw: bool = False
    most: int | None = None

    def __post_init__(self) -> None:
        """Refuse a number of labels that is not 1 or more."""
        if self.top is not None and (isinstance(self.top, bool) or self.top < 1):
            raise UserError(f"predict: top is {self.top}; use 1 or more.")
        if self.most is not None and self.most < 1:
            raise UserError(f"predict: --max-new-tokens is {self.most}; use 1 or more.")


def lengthened(run: Finished, most: int | None) -> Finished:
    """Return a run that writes so many tokens at most."""
    if most is None:
        return run
    if run.task.answer != "text":
        raise UserError(f"predict {run.folder}: --max-new-tokens is for runs that write texts.")
    return replace(run, readout={**run.readout, "max_new_tokens": most})


def answer_of(
    run: Finished, question: Question, prediction: Prediction, detail: Detail
) -> dict[str, Any]:
    """Return what a line of `ptrun predict` holds."""
    answer: dict[str, Any] = {"id": question.id, "prediction": prediction.value}
    if run.task.answer == "option":
        options = dict(enumerate(question.example.fields["options"]))
        answer["option"] = options.get(prediction.value)  # a T5 may write no option
    if prediction.probability is not None:
        answer["probability"] = round(prediction.probability, 4)
    if not (detail.probabilities or detail.top):
        return answer
    if prediction.probabilities is None:
        raise UserError(
            f"predict {run.folder}: this run's read-out has no probabilities of labels. Leave out "
            "--probabilities and --top (in Python: probabilities and top)."
        )
    shares = {key: round(share, 4) for key, share in prediction.probabilities.items()}
    if detail.probabilities:
        answer["probabilities"] = shares if run.task.answer != "option" else list(shares.values())
    if detail.top:
        best = sorted(prediction.probabilities.items(), key=lambda pair: -pair[1])[: detail.top]
        answer["top"] = [{"prediction": key, "probability": round(p, 4)} for key, p in best]
    return answer


# A finished run, loaded for prediction with the options of the command line.

_WHOLE = ("hardware", "data_dir", "outputs")  # keys that are composed, not set
_INSIDE = ("backbone.path", "start", "method.glove", "task.vocabulary")


def ready(name: str, typed: Sequence[str], command: str = "predict") -> Finished:
    """Return a finished run; `load` reads the backbone's weights later."""
    keys = {override: override.partition("=")[0] for override in typed}
    for override, key in keys.items():
        if key not in (*_WHOLE, *_INSIDE) and not key.startswith("hardware."):
            allowed = ", ".join((*_WHOLE, "hardware.KEY", *_INSIDE))
            raise UserError(
                f"{command} {override}: a finished run cannot change this. Allowed: {allowed}."
            )
    outputs = [text.partition("=")[2] for text, key in keys.items() if key == "outputs"]
    run = find(name, command, Path(*outputs[-1:] or ["outputs"]).expanduser())
    if run.result.status != "finished":
        raise UserError(f"{command} {run.folder}: this run failed ({run.result.reason}).")
    config = _config(run, keys)
    reading = build.target("readout", config["readout"])
    config["readout"] = reading.recalled(config["readout"], run.result.config["readout"])
    if any(str(value).startswith("@") for value in config["method"].values()):
        config["method"] = {**config["method"], **run.result.config["method"]}  # not its file
    _check_method(run, config)
    path = config["backbone"]["path"] if "backbone.path" in keys.values() else None
    backbone = backbone_of(run.result, path, config["backbone"].get("families"))
    if "+" in run.result.manifest["backbone"]["weights"]:  # tuned by the run that it starts from
        start = str(config["start"]).removeprefix("run:")
        folder = saved_prompt.find(start, Path(config["outputs"]), config["name"])
        backbone.tuned = tuned_by(folder, bound_to(backbone))
    tensors, labels = learned(run.folder, run.result, backbone)
    task = _task(run, config, labels)
    engine = build.build("hardware", config["hardware"], backbone)
    return Finished(
        *(run.folder, run.result, task, backbone, engine),
        *(config["method"], config["readout"], tensors),
    )


def _config(run: RunFolder, keys: Mapping[str, str]) -> dict[str, Any]:
    """Return the run's configuration with the options of the command line."""
    recorded = request.read(run.folder)
    typed = compose_run([override for override, key in keys.items() if key in _WHOLE]).config
    config = dict(recorded.config)
    if "data_dir" in keys.values() or not config.get("data_dir"):
        config["data_dir"] = typed["data_dir"]
    if "hardware" in keys.values():
        config["hardware"] = {**typed["hardware"], **run.result.config["hardware"]}
    for override, key in keys.items():
        if key not in _WHOLE:
            put(config, key, parsed(override))
    build.check({"hardware": config["hardware"]})
    if build.target("hardware", config["hardware"]) is not TorchEngine:
        raise UserError(
            f"predict {run.folder}: hardware={recorded.names['hardware']} has several processes, "
            "but predict runs in one. Type hardware=gpu or hardware=cpu."
        )
    return config


def _check_method(run: RunFolder, config: Mapping[str, Any]) -> None:
    """Refuse a missing or changed file of the method."""
    node = config["method"]
    for key, place in gone(config):
        if key.startswith(("method.", "readout.")):
            raise UserError(
                f"predict {run.folder}: {key}={place} is missing. Type {key}=PATH with its place."
            )
    method: type[Method] = build.target("method", node)
    parts = {"backbone": {}, "task": {}, "method": method.fingerprint_config(node)}
    content = identity.affecting({**parts, "readout": config["readout"]}, "", "")
    if any(content[group] != run.result.config[group] for group in ("method", "readout")):
        raise UserError(
            f"predict {run.folder}: a file of its method has changed. Type "
            "method.glove=FILE with the original content."
        )


def _task(run: RunFolder, config: Mapping[str, Any], labels: Mapping[str, Any]) -> Task:
    """Return the task with the labels of the run."""
    node = config["task"]
    if TARGET in (node.get("source") or {}):  # keeps the labels of the labeller
        node = {**run.result.config["task"], "source": {"pocket": node["name"]}}
    try:
        task = recalled(node, labels, config["data_dir"])
    except UserError as error:
        raise UserError(f"predict {run.folder}: {error}") from error
    if node.get("vocabulary") and task.digest() != run.result.config["data"]:
        raise UserError(
            f"predict {run.folder}: task.vocabulary={node['vocabulary']} or the task's data have "
            "changed. Type task.vocabulary=FILE or data_dir=DIR with the original data."
        )
    return task
