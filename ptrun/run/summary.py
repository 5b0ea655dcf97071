"""The few lines a run ends with on the terminal."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ptrun.types import RunResult


def summary(result: RunResult, config: Mapping[str, Any]) -> str:
    """Return what a result says, in four lines: who, test, dev, where."""
    names, learned = result.names, result.learned_parameters
    parts = ", ".join(f"{part} {learned[part]:,}" for part in ("prompt", "head", "backbone"))
    facts = result.manifest
    test, dev = result.metrics["test"], result.metrics["dev"]
    others = " ".join(
        f"{name} {value:.2f}" for name, value in test.items() if name != result.metric
    )
    chosen = f" at step {facts['best_step']}" if "best_step" in facts else ""
    selected = f"dev {result.metric} {dev[result.metric]:.2f}{chosen} of" if dev else "no dev,"
    return "\n".join(
        [
            f"{names['method']} · {names['backbone']} · {names['task']} · {names['setting']} · "
            f"seed {result.seed}",
            f"  test {result.metric} {test[result.metric]:.2f}  {others}".rstrip(),
            f"  {selected} {facts['steps']} steps · protocol {names['protocol']}",
            f"  learned {learned['total']:,} parameters ({parts}) · {facts['seconds']:.0f} s · "
            f"{facts['tokens_per_second']:,.0f} tokens/s · {facts['precision']}",
            f"  {Path(config['outputs']) / config['name'] / result.run_id}",
        ]
    )
