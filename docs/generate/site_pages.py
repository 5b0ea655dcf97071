"""Fills the pages of the site: a line `<!-- make: NAME ARGUMENTS -->` becomes what NAME returns.

`expand` is what MkDocs calls for each page (`hook.py`), and what the tests read.
"""

import re
import shlex
from collections.abc import Callable, Mapping
from functools import cache

import commands
import figures
import lists
import options
import papers
import results
import starting

_MARK = re.compile(r"^<!-- make: (.+?) -->$", re.MULTILINE)
MAKERS: Mapping[str, Callable[..., str]] = {
    "commands": commands.commands,
    "imports": commands.imports,
    "starts": commands.starts,
    "groups": options.groups,
    "group": lists.group,
    "kinds": lists.kinds,
    "metrics": lists.metrics,
    "models": lists.models,
    "methods": lists.methods,
    "extras": lists.extras,
    "measured": lists.measured,
    "root": options.root,
    "method": options.method,
    "presets": options.presets,
    "component": options.component,
    "keys": options.keys,
    "paper": papers.paper,
    "picture": figures.picture,
    "families": figures.families,
    "cost": figures.cost,
    "result": results.result,
    "start": starting.start,
}


def expand(markdown: str) -> str:
    """Return a page with every mark replaced."""
    return _MARK.sub(lambda found: _made(found[1]), markdown)


@cache
def _made(line: str) -> str:
    name, *arguments = shlex.split(line)
    return MAKERS[name](*arguments)
