"""The summary that a finished run prints."""

from pathlib import Path

from ptrun.config.readable import readable, visible
from ptrun.errors import UserError
from ptrun.types import RunResult


def summary(result: RunResult, folder: Path) -> str:
    """Return the summary of a finished run; `folder` contains its run folder.

    Raises:
        UserError: the result has a fact of another type.
    """
    try:
        return readable(_summary(result, visible(str(folder / result.run_id))))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        own = visible(str(folder / result.run_id))
        raise UserError(
            f"{own}: damaged (its facts: {error}). Type the command again with rerun=true."
        ) from error


def _summary(result: RunResult, folder: str) -> str:
    names, learned, facts = result.names, result.learned_parameters, result.manifest
    parts = ", ".join(f"{part} {learned[part]:,}" for part in ("prompt", "head", "backbone"))
    metric, test, dev = result.metric, result.metrics["test"], result.metrics["dev"]
    scored = (
        f"test {metric} {test[metric]:.2f}" if test else "a trial of a search, not scored on test"
    )
    others = " ".join(f"{name} {value:.2f}" for name, value in test.items() if name != metric)
    step = f" at step {facts['best_step']}" if "best_step" in facts else ""
    faster = facts.get("faster_precision")
    hint = f" ({faster} is faster here: hardware.precision={faster})" if faster else ""
    form = facts.get("quantization", "none")
    held = "" if form == "none" else f", {form}"
    per_second = facts["tokens_per_second"]  # 0 where nothing was trained since a resume
    speed = f" · {per_second:,.0f} tokens/s" if per_second else ""
    lowest = " (lowest dev loss)" if facts.get("selected_by") == "loss" else ""
    selected = f"dev {metric} {dev[metric]:.2f}{step}{lowest} of" if dev else "no dev,"
    return "\n".join(
        [
            f"{names['method']} · {names['backbone']} · {names['task']} · {names['setting']} · "
            f"seed {result.seed}",
            f"  {scored}  {others}".rstrip(),
            f"  {selected} {facts['steps']} steps · protocol {names['protocol']}",
            f"  trained {learned['total']:,} parameters ({parts}) · {facts['seconds']:.0f} s{speed}"
            f" · {facts['precision']}{held}{hint}",
            *(f"  warning: {text}" for text in facts.get("warnings", [])),
            f"  {folder}",
        ]
    )
