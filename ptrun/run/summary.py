"""What a finished run prints."""

from pathlib import Path

from ptrun.types import RunResult


def summary(result: RunResult, folder: Path) -> str:
    """Return the lines that a run prints when it is finished; `folder` holds its run folder."""
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
            f"  trained {learned['total']:,} parameters ({parts}) · {facts['seconds']:.0f} s · "
            f"{facts['tokens_per_second']:,.0f} tokens/s · {facts['precision']}",
            f"  {folder / result.run_id}",
        ]
    )
