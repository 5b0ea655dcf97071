"""Check this machine: versions, devices, compiler, cache, data; and say what to type.

Exit status 1 if something is missing that every run needs.
"""

import sys
from collections.abc import Sequence

from ptrun.config.arguments import Parser

EXAMPLES = """\
  ptrun doctor            what is here, what will not work here, and the remedy
"""
_MARKS = {"ok": "ok  ", "note": "note", "bad": "BAD "}


def parser() -> Parser:
    """Return the parser of the command line."""
    return Parser("doctor", __doc__, EXAMPLES)


def main(arguments: Sequence[str]) -> None:
    """Print one line for each check, with the remedy below those that found something."""
    parser().parse(arguments)
    from ptrun.planning.doctor import checks

    found = checks()
    for check in found:
        print(f"{_MARKS[check.state]}  {check.name:<12}{check.says}")
        if check.remedy:
            print(f"{'':18}{check.remedy}")
    if any(check.state == "bad" for check in found):
        sys.exit(1)
