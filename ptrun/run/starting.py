"""Where the prompt of a run begins: `start=` checked against its method, task and other runs."""

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
    composed: Composed,
    method: type[Method],
    task: Task,
    bound: Mapping[str, str],
) -> Start:
    """Return the start of a run, checked as far as names tell; reads another run's prompt file.

    Raises:
        UserError: as `parse`; the method or the task cannot begin so; the other run is not there,
            or has another backbone.
    """
    config = composed.config
    start = parse(config["start"])
    if start.kind == "run":
        folder = saved_prompt.find(start.value, composed.outputs, composed.name)
        if tuned := tuned_by(folder, bound):
            return Start("run", start.value, folder=folder, digest=tuned.digest, tuned=tuned)
        return Start(
            "run", start.value, folder=folder, digest=saved_prompt.fingerprint(folder, bound)
        )
    if start.kind == "pretrained":
        return Start("pretrained", task_for(task, config["method"], start.value))
    if start.kind != "random" and not method.learns_vectors(config["method"]):
        raise UserError(
            f"start={config['start']}: {method.__name__} as configured learns no input vectors; "
            "use start=random, start=run:... or start=pretrained:TASK, or method=prompt_tuning\n"
            "(or method=ptuning method.encoder=plain)."
        )
    if start.kind == "labels" and not task.labels and task.kind != "choice":
        raise UserError(f"start=labels: task={task.name} has no labels; use start=vocabulary.")
    return start
