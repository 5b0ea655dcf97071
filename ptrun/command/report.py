"""Show a table of results over seeds, or a paper's numbers beside ours.

`ptrun report DIR` reads every result below a folder. It prints mean and standard deviation of each
method and task. `ptrun report --paper NAME` prints every number of a paper beside ours; its options
are those of `ptrun paper --help`.
"""

from collections.abc import Sequence
from pathlib import Path

from ptrun.config.arguments import Parser, load
from ptrun.errors import UserError

EXAMPLES = """\
  ptrun report outputs                          mean, standard deviation and n of each cell
  ptrun report outputs --over readout.pattern    over the values of a key, and the best on dev
  ptrun report outputs --labels                 precision, recall and F1 of each label
  ptrun report outputs --best 3                 also the mean of the best 3 seeds, as DPT does
  ptrun report outputs --csv results.csv        the numbers as a file; --csv - prints them
  ptrun report --paper dpt --to ledger          the paper beside ours: a page, CSV, LaTeX, figures
"""

PARSER = Parser("report", __doc__, EXAMPLES)
PARSER.add_argument(
    "folder", nargs="?", type=Path, metavar="DIR", help="folder of results (outputs)"
)
_rows = PARSER.add_mutually_exclusive_group()
_rows.add_argument("--over", metavar="KEY", help="one row for all values of this key")
_rows.add_argument("--best", type=int, metavar="N", help="also the mean of the best N seeds")
_rows.add_argument("--labels", action="store_true", help="a row for each label, with its scores")
_rows.add_argument("--vote", action="store_true", help="also the score of the seeds' majority")
_form = PARSER.add_mutually_exclusive_group()
_form.add_argument("--csv", metavar="FILE", help="write the numbers as CSV; - prints them")
PARSER.add_argument(
    "--raw", action="store_true", help="with --csv: formulas as they are, without an apostrophe"
)
_form.add_argument("--markdown", action="store_true", help="print the table as Markdown")
PARSER.add_argument(
    "--paper", metavar="NAME", help="a paper's tables; ptrun paper --help has its options"
)


def main(arguments: Sequence[str]) -> None:
    """Print the table of a folder of results; `--paper` is the command of the papers."""
    if any(argument.partition("=")[0] == "--paper" for argument in arguments):
        if (papers := load("paper")) is None:
            raise UserError("report --paper: no installed package has the command paper.")
        papers.main(arguments)
        return
    typed = PARSER.parse(arguments)
    from ptrun.files import write_text
    from ptrun.reporting.formats import show
    from ptrun.reporting.table import table

    folder = typed.folder or Path("outputs")
    results = table(folder, over=typed.over, best=typed.best, vote=typed.vote, labels=typed.labels)
    if typed.csv not in (None, "-"):
        write_text(Path(typed.csv), results.csv(raw=typed.raw))
    elif typed.csv or typed.markdown:
        print(results.csv(raw=typed.raw) if typed.csv else results.markdown(), end="")
    else:
        show(results)
