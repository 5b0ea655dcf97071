"""`continue=`: go on with a finished run.

With its state a run begins with the files of an interrupted one, and goes on as that would. Without
it, or on other rows, prompt and read-out of the selected step go on, and the rest begins anew.
"""

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from glob import escape
from pathlib import Path
from typing import Any

from ptrun.config.compose import Composed
from ptrun.config.identity import flat
from ptrun.config.schema import TrainConfig
from ptrun.errors import UserError
from ptrun.files import from_json
from ptrun.folder import result
from ptrun.folder import tensors as files
from ptrun.folder.digest import AGAIN, PROMPT, of_plain
from ptrun.folder.find import RunFolder, find
from ptrun.folder.store import read_tensors
from ptrun.method.base import Method
from ptrun.start.saved_prompt import follow, prompt_of
from ptrun.start.spec import CONTINUE, Start
from ptrun.training.optim import learning_rate

_MOST, _EPOCHS = "train.max_steps", "train.epochs"
_FREE = (_MOST, _EPOCHS, "train.lr", "train.eval_every", "train.patience")
_ROWS = ("data", "setting", "protocol")
_STATES = "*state.safetensors"  # of the parts, without the pieces of ranks


def origin(typed: Composed) -> tuple[Start, RunFolder]:
    """Return the start of a run that goes on with another, and that one.

    The digest is over its id and the tensors of all that may be taken over.
    """
    named = typed.config["continue"]
    if "start" in typed.typed:
        raise UserError(f"continue={named}: the prompt comes from that run. Leave out start=.")
    value = named.removeprefix("run:")
    near = typed.outputs / typed.name / value
    run = find(str(near if near.is_dir() else value), "continue", typed.outputs)
    kept = {f.name: files.hashes(f, AGAIN) for f in sorted(run.folder.glob("*.safetensors"))}
    tuned = "+" in run.result.manifest["backbone"]["weights"]
    if run.result.status != "finished" or tuned or not kept:
        raise UserError(
            f"continue={named}: expected a finished run that kept its state or its {PROMPT}, on a "
            "backbone that no other run tuned. Type its command with keep=state, or more steps."
        )
    digest = of_plain([run.result.run_id, kept])[:16]
    return Start(CONTINUE, run.result.run_id, folder=run.folder, digest=digest), run


def compared(
    start: Start,
    other_run: RunFolder,
    keys: Iterable[str],
    content: Mapping[str, Any],
    names: Mapping[str, str],
    train: TrainConfig,
) -> Start:
    """Return the start with its steps, if the state is taken over, and with what is told.

    `keys` are those in which the runs differ, without defaults; `content` is that of this run. Runs
    that differ in what must be equal are refused.
    """
    done, states = other_run.result, [*other_run.folder.glob(_STATES)]
    both, told = differing(content, done.config), dict[str, str]()
    groups = {key: key.partition(".")[0] for key in keys if key not in _FREE}
    rows = [group for group in _ROWS if group in groups.values()]
    free = ("start", "trial", *rows, *([] if states and not rows else ["train"]))
    run = f"{CONTINUE}=run:{start.value}"
    for key, group in groups.items():
        options = names.get(group), done.names.get(group)
        named, pair = (key, both[key]) if options[0] == options[1] else (group, options)
        if group not in free:
            ours, theirs = ("the default" if value is None else value for value in pair)
            told[named] = f"{named} is {ours} here and {theirs} there"
    if told:
        alone = f", or start=run:{start.value} for its prompt alone"
        raise UserError(
            f"{run}: {'; '.join(told.values())}.\nType the options of that run with more steps"
            f"{alone if done.manifest.get('prompt') else ''}."
        )
    if states and not rows:
        return _with_state(start, states, run, train, done.config["train"])
    why = f"it had other rows ({', '.join(rows)})" if rows else "it kept no state (keep=state)"
    seen = "; rows that it was trained on may be dev or test here" if rows else ""
    text = f"{run}: {why}, so prompt and read-out go on from its selected step"
    return replace(start, told=(f"{text}; optimizer, steps and order of rows begin anew{seen}",))


def differing(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the dotted keys in which contents differ as results have them, with both values."""
    now, before = (flat(json.loads(json.dumps(each, default=str))) for each in (ours, theirs))
    pairs = {key: (now.get(key), before.get(key)) for key in [*now, *before]}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def _with_state(
    start: Start, states: Iterable[Path], run: str, train: TrainConfig, before: Mapping[str, Any]
) -> Start:
    """Return the start with the steps that are done; refuse a run that is not longer."""
    parts = list[dict[str, Any]]()
    for file in states:
        with files.checked(file, AGAIN) as (_, header):
            parts.append(from_json(header["state"]))
    step, of = (max(part[key] for part in parts) for key in ("step", "of"))
    counts = train.max_steps or before["max_steps"]  # else epochs
    total = train.max_steps or (0 if counts else of * train.epochs // before["epochs"])
    stale = min(part["stale"] for part in parts)
    if total <= step or (train.patience and stale >= train.patience):
        key = "max_steps" if counts else "epochs"
        if total > step:
            key = f"patience (evaluations without progress at its end: {stale})"
        raise UserError(f"{run}: {step} steps are done, none is left. Type a larger train.{key}.")
    told, rate = list[str](), before["lr"]
    if train.lr != rate:
        told.append(f"continue: train.lr is {train.lr:g} from step {step + 1} on, and was {rate:g}")
    following = learning_rate(train, step, total, 1)
    if following != learning_rate(train, step, of, 1):
        last = learning_rate(replace(train, lr=rate), step - 1, of, 1)
        told.append(
            f"continue: train.schedule={train.schedule} now reaches to step {total}: the rate of "
            f"step {step} was {last:.3g}, the next is {following:.3g}"
        )
    return replace(start, steps=step, told=tuple(told))


def take_over(start: Start, methods: Mapping[str, Method], bound: Mapping[str, str]) -> None:
    """Copy prompt and read-out into methods by part; beside a state the vectors that it lacks."""
    assert start.folder is not None
    learner = next(iter(methods.values()))
    lacking = prompt_of(learner).keys() - learner.learned().keys()
    if start.steps and not (lacking and learner.unfolded({}) is not None):
        return
    if prompt_of(learner):
        follow(start.folder, methods, bound)
    tensors, header = read_tensors(start.folder / PROMPT, bound)
    here, there = json.loads(json.dumps(learner.task.recorded())), from_json(header["task"])
    if here != there:
        raise UserError(
            f"{CONTINUE}=run:{start.value}: it has the labels and patterns {there}, and this run "
            f"{here}. Use rows with the same, or start=run:{start.value} for its prompt alone."
        )
    for part, method in methods.items():
        prompt, prefix = prompt_of(method), f"{part}/" if part else ""
        learned = {n: prompt[n] if n in prompt else tensors[prefix + n] for n in method.learned()}
        Method.load_exported(method, learned)  # that of a class makes an encoder's prompt final


def log_shorter(folder: Path, content: Mapping[str, Any]) -> None:
    """Name the finished run beside a new one that has its options and the most steps of fewer."""
    train, steps = content["train"], dict[str, int]()
    for file in folder.parent.glob(f"{escape(folder.name[:-9])}-????????/{result.FINISHED}"):
        done = result.read(file.parent)
        if done and {_MOST, _EPOCHS}.issuperset(differing(content, done.config)):
            before, reached = done.config["train"], done.manifest["steps"]
            epochs = train["epochs"] if before["max_steps"] else before["epochs"]
            if reached < train["max_steps"] if train["max_steps"] else epochs < train["epochs"]:
                steps[done.run_id] = reached
    if steps:
        name = max(steps, key=steps.__getitem__)
        new = "" if any((folder.parent / name).glob(_STATES)) else " with a new optimizer"
        told = f"{name} is finished at {steps[name]} steps with the same options; {CONTINUE}=run:"
        logging.getLogger(__name__).info("%s%s goes on from there%s", told, name, new)
