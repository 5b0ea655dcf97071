"""Compare methods fairly: equal trials for each, dev chooses, fresh seeds, test once.

Each method is searched in its own space, conf/search/METHOD.yaml. The page, its CSV and a picture
are in the folder of the runs. The same command goes on.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ptrun.config.arguments import Parser
from ptrun.errors import UserError

EXAMPLES = """\
  ptrun compare method=prompt_tuning,lora task=sst2 backbone=roberta_base trials=6 seeds=5
  ptrun compare method=in_context,ptuning_v2 task=cb,rte backbone=smollm2_135m forgetting=texts.txt
"""
_COUNTS = {"trials": 6, "seeds": 5}

PARSER = Parser("compare", __doc__, EXAMPLES)
PARSER.overrides(
    "method=A,B,... and overrides of all runs; trials=N of each method (default 6), seeds=N of its "
    "winner (default 5)"
)


def main(arguments: Sequence[str]) -> None:
    """Do a comparison, write its page and print its tables."""
    args = PARSER.parse(arguments)
    counts, typed = dict(_COUNTS), []
    for override in args.overrides:
        key, _, value = override.partition("=")
        if key not in counts:
            typed.append(override)
            continue
        if not value.isdecimal() or int(value) < 1:
            PARSER.error(f"{override}: give a number, 1 or more")
        counts[key] = int(value)
    from ptrun.files import write_text
    from ptrun.reporting import comparison, formats, page

    folder, rows = compared(typed, **counts)
    title = f"Equal trials: {counts['trials']} a method, {counts['seeds']} seeds of each winner"
    write_text(folder / "comparison.csv", comparison.csv(rows))
    write_text(folder / "comparison.html", page.html(title, comparison.parts(rows, title)))
    for part in comparison.parts(rows, title):
        if part.table:
            formats.show(part.table)
    print(f"{folder / 'comparison.html'} and .csv", file=sys.stderr)


def compared(typed: Sequence[str], *, trials: int, seeds: int) -> tuple[Path, list[dict[str, Any]]]:
    """Do a comparison; return its folder and the rows of its table."""
    try:
        from ptrun.sweeps.compare import compare
    except ImportError as error:
        if error.name != "optuna":
            raise
        raise UserError("compare needs Optuna. Type: pip install 'ptrun[search]'") from error
    from ptrun.reporting.comparison import rows

    folder, contenders = compare(typed, trials=trials, seeds=seeds)
    return folder, rows(contenders, trials)
