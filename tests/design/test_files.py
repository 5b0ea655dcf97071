"""A file has two importers or is an entry, and at most 600 lines; no class name occurs twice."""

import ast
import re
from collections import Counter, defaultdict
from functools import cache

from tests.design.test_rooms import FILES, ROOT, modules

MOST = 600
OPTIONS = {
    "start.peft": "`start=peft:DIR`",
    "sweeps.slurm": "`sweep.on=slurm`",
    "backbone.masked": "a family of models, by its name",
    "api": "`import ptrun`",
    "cli": "`ptrun`",
    "__main__": "`python -m ptrun`",
}
"""Entries that no configuration file and no other module names."""


@cache
def importers():
    """Return the modules that import each module."""
    found = defaultdict(set)
    for one, others in modules().items():
        for other in others:
            found[other].add(one)
    return found


def lines(module):
    return len(FILES[module].read_text(encoding="utf-8").splitlines())


def named():
    """Return the modules that a `_target_` of conf/ or a string of the package names."""
    files = [*(ROOT.parent / "conf").rglob("*.yaml"), *ROOT.rglob("*.py")]
    texts = [file.read_text(encoding="utf-8") for file in files]
    found = {match[6:] for text in texts for match in re.findall(r"ptrun\.[\w.]+", text)}
    return {name for full in found for name in (full, full.rpartition(".")[0]) if name in FILES}


def is_entry(module):
    room = module.partition(".")[0]
    if module in OPTIONS or room in ("command", "tracking") or module.startswith("scaffold.exa"):
        return True
    return all(other.startswith("command.") for other in importers()[module] or {"?"})


def test_no_file_is_long():
    assert not {module: lines(module) for module in FILES if lines(module) > MOST}


def test_a_file_with_one_importer_is_an_entry_or_would_make_it_too_long():
    strings = named()
    wrong = {
        module: other
        for module in FILES
        if len(importers()[module]) == 1 and not is_entry(module) and module not in strings
        for other in importers()[module]
        if lines(module) + lines(other) <= MOST
    }
    assert not wrong


def test_a_class_name_occurs_once():
    found = Counter(
        node.name
        for file in FILES.values()
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    )
    assert not [name for name, count in found.items() if count > 1]


def test_no_test_replaces_the_clock_of_all_threads():
    """An event loop of another thread that asks a clock which stands still sleeps for hours."""
    replaced = re.compile(r"""setattr\((\w+\.)*time, "(monotonic|sleep)"|["']time\.(mono|sleep)""")
    own = [
        file for file in (ROOT.parent / "tests").rglob("*.py") if replaced.search(file.read_text())
    ]
    assert own == [], "use tests.clock.own_clock"
