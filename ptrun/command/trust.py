"""Trust the current folder: its ptrun_conf counts, with the classes that it names.

Options can name code, and a cloned project has options of somebody else. So they are not read until
you type this once in the folder. It holds for all folders below, and for what is added later.
PTRUN_TRUST=1 trusts every folder, for containers and notebooks.
"""

from collections.abc import Sequence
from pathlib import Path

from ptrun.config.arguments import Parser

EXAMPLES = """\
  ptrun trust             the current folder and those below
  ptrun trust --list      the folders that you trust
  ptrun trust --remove    not any more
"""


def parser() -> Parser:
    """Return the parser of the command line."""
    made = Parser("trust", __doc__, EXAMPLES)
    made.add_argument("folder", nargs="?", type=Path, default=Path(), help="another folder")
    what = made.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", help="print the trusted folders")
    what.add_argument("--remove", action="store_true", help="take the trust back")
    return made


def main(arguments: Sequence[str]) -> None:
    """Trust a folder, or take that back.

    Raises:
        UserError: there is no such folder, or it was not trusted.
    """
    from ptrun.config import trust
    from ptrun.errors import UserError, visible

    given = parser().parse(arguments)
    if given.list:
        for folder in trust.folders():
            print(visible(str(folder)))
        return
    if given.remove:
        trust.remove(given.folder)
    elif not given.folder.is_dir():
        raise UserError(f"trust {given.folder}: no such folder.")
    else:
        trust.trust(given.folder)
    done = "no longer trusted" if given.remove else "trusted, with all folders below"
    print(f"{visible(str(given.folder.resolve()))}: {done}")
