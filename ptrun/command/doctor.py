"""Check this machine: versions, devices, compiler, cache, data; and say what to type.

With backbone=NAME, try a model: whether prompts work in it, and which methods fit.
Exit status 1 if something is missing that every run needs, or prompts do not work.
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ptrun.config.arguments import Parser
from ptrun.errors import folded

if TYPE_CHECKING:
    from ptrun.planning.doctor import Check

EXAMPLES = """\
  ptrun doctor            what is here, what will not work here, and the remedy
  ptrun doctor backbone=smollm2_135m    whether prompts work in this model, and the methods
  ptrun doctor backbone.path=FOLDER     the same for a folder
"""
_MARKS = {"ok": "ok  ", "note": "note", "bad": "BAD "}

PARSER = Parser("doctor", __doc__, EXAMPLES)
PARSER.overrides("a backbone to try: backbone=NAME, backbone.path=FOLDER, backbone.hub=ORG/NAME")


def main(arguments: Sequence[str]) -> None:
    """Print one line for each check, with the remedy below those that found something."""
    args = PARSER.parse(arguments)
    from ptrun.planning.doctor import backbone_checks, checks

    lines = backbone_checks(args.overrides) if args.overrides else [*checks()]
    show(lines)
    if any(check.state == "bad" for check in lines):
        sys.exit(1)


def show(checks: Sequence["Check"]) -> None:
    """Print checks, with names of one width."""
    width = max(12, *(len(check.name) + 2 for check in checks))
    for check in checks:
        print(folded(f"{_MARKS[check.state]}  {check.name:<{width}}{check.says}"))
        if check.remedy:
            print(folded(f"{'':{width + 6}}{check.remedy}"))
