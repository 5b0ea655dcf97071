"""A paper's tables: what they hold, how they are run and what cannot be run."""

from collections import Counter
from collections.abc import Sequence

from text import cell, notes, table

from ptrun.config.paths import conf_dir, options
from ptrun.papers.experiment import Experiment, load, names, own_cells

_SHOWN = ("#   ptrun experiment=", "#   ptrun report", "# About ", "# Options: ", "# Minutes on")
"""How lines begin that a section shows by its commands and facts."""


def paper(name: str) -> str:
    """Return an overview of a paper's tables, then a section for each."""
    found = [load(n) for n in sorted(names(), key=_tables_first) if n.startswith(f"{name}/")]
    rows = [
        (f"[{e.table}](#{e.table.lower()})", cell(e.title), str(_cells(e)), str(len(e.seeds)))
        for e in found
    ]
    head = table(("table", "subject", "cells", "seeds"), rows)
    return "\n\n".join([head, *map(_section, found), _data(found)])


def _data(found: Sequence[Experiment]) -> str:
    """Return what is written about the data sets of the tables, beside their kind of task."""
    words = {word for e in found for change in e.axes["task"].values() for word in change}
    named = sorted(w.removeprefix("task=") for w in words if w.startswith("task="))
    rows = [(f"`task={n}`", said) for n in named if (said := notes(options("task")[n]))]
    return f"## Data\n\n{table(('data set', 'notes'), rows)}" if rows else ""


def _tables_first(name: str) -> tuple[bool, str]:
    return "/table" not in name, name


def _cells(own: Experiment) -> int:
    return len({cell.key for cell in own.cells})


def _section(own: Experiment) -> str:
    parts = [f"## {own.table}", f"{own.title}.", _commands(own)]
    if run := len(own_cells(own)):
        script = f"scripts/reproduce.sh {own.name}"
        parts.append(f"`{script}` checks, runs and reports its {run} cells.")
    parts.append("\n".join(f"- **{name}:** {said}" for name, said in _facts(own)))
    if said := notes(conf_dir() / "experiment" / f"{own.name}.yaml", _SHOWN):
        parts.append(said)
    if reasons := _reasons(own):
        parts += ["Cells without a run of their own:", table(("cells", "reason"), reasons)]
    return "\n\n".join(parts)


def _commands(own: Experiment) -> str:
    if not own_cells(own):
        shown = f"ptrun report --paper {own.paper} --table {own.table}"
        return f"No runs of its own.\n\n```bash\n{shown}\n```"
    whole = f"ptrun experiment={own.name} data_dir=DIR hardware=gpu"
    small = f"ptrun experiment={own.name} +scale=pocket check=true"
    return f"<!-- doc: compose -->\n```bash\n{whole}\n{small}\n```"


def _facts(own: Experiment) -> list[tuple[str, str]]:
    facts = [
        ("Printed where", own.source),
        ("Protocol", own.protocol),
        ("Statistic", f"{own.statistic} of seeds {', '.join(map(str, own.seeds))}"),
        ("Precision", own.precision),
        ("GPU hours", own.hours),
        ("Pocket scale", _pocket(own)),
        *((" · ".join(", ".join(values) for values in n.when.values()), n.what) for n in own.notes),
    ]
    return [(name, cell(said)) for name, said in facts if said]


def _pocket(own: Experiment) -> str:
    if own.pocket is None:
        return "a smoke test: two steps a cell, and no rows in a report"
    rows, cells = len(own.at("pocket").cells), len(own.cells)
    return (
        f"fills {rows} of {cells} rows in {own.pocket.minutes}; then `ptrun report --paper "
        f"{own.paper} --table {own.table} --scale pocket`"
    )


def _reasons(own: Experiment) -> list[tuple[str, str]]:
    counted = Counter(own.reason(place) for place in own.cells)
    return [(str(n), cell(why)) for why, n in counted.items() if why]
