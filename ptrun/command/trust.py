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

PARSER = Parser("trust", __doc__, EXAMPLES)
PARSER.add_argument("folder", nargs="?", type=Path, default=Path(), help="another folder")
_what = PARSER.add_mutually_exclusive_group()
_what.add_argument("--list", action="store_true", help="print the trusted folders")
_what.add_argument("--remove", action="store_true", help="take the trust back")


def main(arguments: Sequence[str]) -> None:
    """Trust a folder, or take that back."""
    from ptrun.config import trust
    from ptrun.errors import UserError, visible

    args = PARSER.parse(arguments)
    if args.list:
        for folder in trust.folders():
            print(visible(str(folder)))
        return
    if args.remove:
        trust.remove(args.folder)
    elif not args.folder.is_dir():
        raise UserError(f"trust {args.folder}: no such folder.")
    else:
        trust.trust(args.folder)
    done = "no longer trusted" if args.remove else "trusted, with all folders below"
    print(f"{visible(str(args.folder.resolve()))}: {done}")
