"""Show a table of results over seeds, or a paper's numbers beside ours.

`ptrun report DIR` reads every result below a folder. It prints mean and standard deviation of each
method and task. `ptrun report --paper NAME` prints every number of a paper beside ours.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ptrun.config.arguments import Parser
from ptrun.errors import UserError

if TYPE_CHECKING:
    from rich.console import RenderableType

EXAMPLES = """\
  ptrun report outputs                          mean, standard deviation and n of each cell
  ptrun report outputs --over readout.pattern    over the values of a key, and the best on dev
  ptrun report outputs --labels                 precision, recall and F1 of each label
  ptrun report outputs --best 3                 also the mean of the best 3 seeds, as DPT does
  ptrun report outputs --csv results.csv        the numbers as a file; --csv - prints them
  ptrun report --paper dpt --to ledger          the paper beside ours: a page, CSV, LaTeX, figures
"""


def parser() -> Parser:
    """Return the parser of the command line."""
    line = Parser("report", __doc__, EXAMPLES)
    line.add_argument(
        "folder", nargs="?", type=Path, metavar="DIR", help="folder of results (outputs)"
    )
    rows = line.add_mutually_exclusive_group()
    rows.add_argument("--over", metavar="KEY", help="one row for all values of this key")
    rows.add_argument("--best", type=int, metavar="N", help="also the mean of the best N seeds")
    rows.add_argument("--labels", action="store_true", help="a row for each label, with its scores")
    rows.add_argument("--vote", action="store_true", help="also the score of the seeds' majority")
    form = line.add_mutually_exclusive_group()
    form.add_argument("--csv", metavar="FILE", help="write the numbers as CSV; - prints them")
    line.add_argument(
        "--raw", action="store_true", help="with --csv: formulas as they are, without an apostrophe"
    )
    form.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    line.add_argument("--paper", metavar="NAME", help="dpt, ptuning, ptuning_v2, idpg, ppt or all")
    line.add_argument("--table", metavar="NAME", help="with --paper: one table or figure of it")
    line.add_argument(
        "--outputs", type=Path, metavar="DIR", help="with --paper: folder of all runs (outputs)"
    )
    line.add_argument("--scale", metavar="NAME", help="with --paper: runs of +scale=pocket")
    line.add_argument(
        "--to", type=Path, metavar="FOLDER", help="with --paper: write a page, CSV, LaTeX, figures"
    )
    return line


def main(arguments: Sequence[str]) -> None:
    """Print the table of a folder of results, or the ledger of a paper.

    Raises:
        UserError: a name or folder is wrong, or options exclude each other.
    """
    line = parser()
    typed = line.parse(arguments)
    of_folder = [typed.over, typed.best is not None, typed.vote, typed.labels]
    of_folder += [typed.csv, typed.markdown]
    of_paper = [typed.table, typed.outputs, typed.to, typed.scale]
    if typed.paper and typed.folder:
        line.error("give a folder of results or --paper NAME, not both")
    if typed.paper and any(of_folder):
        line.error(
            "--over, --best, --labels, --vote, --csv, --markdown go with a folder of results"
        )
    if not typed.paper and any(of_paper):
        line.error("--table, --scale, --outputs and --to go with --paper")
    if typed.paper:
        from ptrun.ledger.paper import report

        outputs = typed.outputs or Path("outputs")
        show(report(typed.paper, typed.table, outputs, typed.to, typed.scale))
        return
    from ptrun.ledger.report import table

    folder = typed.folder or Path("outputs")
    results = table(folder, over=typed.over, best=typed.best, vote=typed.vote, labels=typed.labels)
    if typed.csv not in (None, "-"):
        _write(Path(typed.csv), results.csv(raw=typed.raw))
    elif typed.csv or typed.markdown:
        print(results.csv(raw=typed.raw) if typed.csv else results.markdown(), end="")
    else:
        show(results)


def show(shown: "RenderableType") -> None:
    """Print a table in the width of the terminal, or in 200 columns to a file or pipe."""
    import sys

    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else 200).print(shown)


def _write(file: Path, text: str) -> None:
    from ptrun.files import write_text

    try:
        write_text(file, text)
    except OSError as error:
        raise UserError(f"--csv {file}: cannot be written ({error.strerror}).") from error
