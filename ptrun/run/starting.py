"""Check `start=` against the method, the task and other runs."""

from collections.abc import Mapping

from ptrun.config.compose import Composed
from ptrun.errors import UserError
from ptrun.method.base import Method
from ptrun.run import saved_prompt
from ptrun.run.pretraining import task_for
from ptrun.run.tuned_backbone import tuned_by
from ptrun.start.spec import Start, parse
from ptrun.task.base import Task


def plan_start(
    composed: Composed, method: type[Method], task: Task, bound: Mapping[str, str]
) -> Start:
    """Return the start of a run; read the prompt file of another run, but no examples.

    Raises:
        UserError: as `parse`; the method or task does not support this start; or the other run is
            missing or has another backbone.
    """
    config = composed.config
    start = parse(config["start"])
    if start.kind == "run":
        folder = saved_prompt.find(start.value, composed.outputs, composed.name)
        tuned = tuned_by(folder, bound)
        digest = tuned.digest if tuned else saved_prompt.fingerprint(folder, bound)
        return Start("run", start.value, folder=folder, digest=digest, tuned=tuned)
    if start.kind == "pretrained":
        return Start("pretrained", task_for(task, config["method"], start.value))
    if start.kind != "random" and not method.learns_vectors(config["method"]):
        raise UserError(
            f"start={config['start']}: {method.__name__} as configured learns no input vectors. "
            "Use start=random, start=run:... or start=pretrained:TASK,\nor method=prompt_tuning "
            "(or method=ptuning method.encoder=plain)."
        )
    if start.kind == "labels" and not task.labels and task.kind != "choice":
        raise UserError(f"start=labels: task={task.name} has no labels. Use start=vocabulary.")
    return start
