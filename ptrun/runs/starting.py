"""Check `start=` against the method, the task and other runs."""

from pathlib import Path

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.config.compose import Composed
from ptrun.errors import UserError
from ptrun.method.base import Method
from ptrun.runs import saved_prompt
from ptrun.runs.pretraining import task_for
from ptrun.runs.store import bound_to
from ptrun.runs.tuned_backbone import tuned_by
from ptrun.start import peft
from ptrun.start.spec import Start, parse
from ptrun.task.base import Task


def plan_start(
    composed: Composed, method: type[Method], task: Task, backbone: PretrainedBackbone
) -> Start:
    """Return the start of a run; read the prompt file of another run, but no examples.

    Raises:
        UserError: as `parse`; the method or task does not support this start; or the other run is
            missing or has another backbone.
    """
    config = composed.config
    start, bound = parse(config["start"]), bound_to(backbone)
    if start.kind == "run":
        folder = saved_prompt.find(start.value, composed.outputs, composed.name)
        tuned = tuned_by(folder, bound)
        digest = tuned.digest if tuned else saved_prompt.fingerprint(folder, bound)
        return Start("run", start.value, folder=folder, digest=digest, tuned=tuned)
    if start.kind == "peft":
        adapter = peft.read(Path(start.value).expanduser())
        peft.check(adapter, method, config["method"], backbone)
        return Start("peft", start.value, folder=adapter.folder, digest=adapter.digest)
    if start.kind == "pretrained":
        return Start("pretrained", task_for(task, config["readout"], start.value))
    if start.kind != "random" and not method.learns_vectors(config["method"]):
        raise UserError(
            f"start={config['start']}: {method.__name__} as configured learns no input vectors. "
            "Use start=random, start=run:... or start=pretrained:TASK,\nor method=prompt_tuning "
            "(or method=ptuning method.encoder=plain)."
        )
    if start.kind == "labels" and not task.labels and task.answer != "option":
        raise UserError(f"start=labels: task={task.name} has no labels. Use start=vocabulary.")
    return start
