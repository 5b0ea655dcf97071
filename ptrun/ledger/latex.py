"""The ledger as LaTeX to include: one longtable each. Needs booktabs and longtable."""

from collections.abc import Sequence

from ptrun.ledger.columns import columns
from ptrun.ledger.shown import MINUS, NONE, Line, Shown

_SPECIAL = {
    "\\": r"\textbackslash{}",
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"\ensuremath{\pm}",
    "\N{MULTIPLICATION SIGN}": r"\ensuremath{\times}",
    "·": r"\textperiodcentered{}",
    MINUS: r"\ensuremath{-}",
    NONE: "--",
}


def latex(tables: Sequence[Shown]) -> str:
    """Return the content of the file."""
    head = "% needs \\usepackage{booktabs,longtable}"
    return "\n".join([head, *(line for table in tables for line in _table(table)), ""])


def _table(table: Shown) -> list[str]:
    shown = columns(table)
    names = [name for name, _ in shown]
    form = "l" * len(table.axes) + "r" * (len(names) - len(table.axes)) + "l"
    experiment, reasons = table.experiment, table.reasons()
    caption = f"{table.heading}. {experiment.title}"
    caption += f" ({table.fixed})." if table.fixed else "."
    caption += (
        f" {table.reported.capitalize()}; 95 % intervals of the difference; {table.precision}."
    )
    label = f"tab:{experiment.paper}-{experiment.table}"
    return [
        "",
        f"\\begin{{longtable}}{{{form}}}",
        f"\\caption{{{escaped(caption)}}}\\label{{{label}}}\\\\",
        r"\toprule",
        " & ".join(map(escaped, [*names, "Verdict"])) + r" \\",
        r"\midrule",
        r"\endhead",
        *(
            " & ".join([*(escaped(read(line)) for _, read in shown), _verdict(line, reasons)])
            + r" \\"
            for line in table.lines
        ),
        r"\bottomrule",
        r"\end{longtable}",
        *(rf"\noindent ({mark}) {escaped(note)}\par" for mark, note in table.notes.items()),
        *(rf"\noindent\textsuperscript{{{n}}} {escaped(why)}\par" for why, n in reasons.items()),
    ]


def _verdict(line: Line, reasons: dict[str, int]) -> str:
    mark = reasons.get(line.why or "")
    return line.row.verdict + (rf"\textsuperscript{{{mark}}}" if mark else "")


def escaped(text: str) -> str:
    """Return a text with LaTeX's special characters escaped."""
    return "".join(_SPECIAL.get(mark, mark) for mark in text)
