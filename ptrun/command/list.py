"""List the options of each group: methods, backbones, tasks, settings, hardware.

Your own options are listed too: ./ptrun_conf/GROUP/NAME.yaml, or below $PTRUN_CONFIG_DIR, where
you typed ptrun trust. So are those of installed packages that have an entry point `ptrun.conf`.
"""

from collections.abc import Sequence

from ptrun.config.arguments import Parser
from ptrun.config.paths import describe, options
from ptrun.config.schema import LISTED
from ptrun.config.trust import tell_untrusted
from ptrun.errors import UserError, folded, unknown

EXAMPLES = """\
  ptrun list              every option of every group
  ptrun list task         the tasks alone
"""

PARSER = Parser("list", __doc__, EXAMPLES)
PARSER.add_argument("groups", nargs="*", metavar="GROUP", help=f"one of {', '.join(LISTED)}")


def main(arguments: Sequence[str]) -> None:
    """Print the options of the given groups or all groups, one a line."""
    groups = PARSER.parse(arguments).groups or list(LISTED)
    for group in groups:
        if group not in LISTED:
            raise UserError(unknown(f"list {group}", group, LISTED))
    tell_untrusted()
    for group in groups:
        for option, file in options(group).items():
            print(folded(f"{f'{group}={option}':<34}{describe(file)}"))
