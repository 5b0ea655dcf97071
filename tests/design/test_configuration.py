"""The composed dictionary is read up to the plan, and by no module after it."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2] / "ptrun"
READERS = {  # they make a plan, or compose the configuration of one from a recorded run
    "runs/plan.py",
    "start/start.py",
    "start/pretraining.py",
    "runs/finished.py",
    "folder/request.py",
    "runs/rerun.py",
    "predicting/answering.py",
    "start/saved_prompt.py",  # what a result recorded
    "types.py",  # likewise
    "runs/longer.py",  # likewise
    "serve/prompts.py",  # likewise
    "exporting/export.py",  # likewise
    "reporting/table.py",
    "planning/grid.py",  # the methods that are no presets
    "papers/labelled.py",  # the recorded run that labels
    "papers/rows.py",  # what a cell's run would record
}


def lookups(tree):
    """Yield what is looked up in what: `holder[key]` and `holder.get(key)`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript):
            yield node.value, node.slice, node.lineno
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "get" and node.args:
            yield node.func.value, node.args[0], node.lineno


def reads(file):
    """Return the lines that look up a root key of something called `config`."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return [
        line
        for holder, key, line in lookups(tree)
        if (getattr(holder, "attr", None) or getattr(holder, "id", None)) == "config"
        and getattr(key, "value", None) in KEYS
    ]


KEYS = {"seed", "data_seed", "data_dir", "outputs", "name", "rerun", "start", "train", "expected"}
KEYS |= {"method", "backbone", "task", "setting", "hardware", "protocol", "tracking", "pretraining"}


def test_only_what_makes_a_plan_reads_the_configuration():
    files = [file for file in sorted(ROOT.rglob("*.py")) if file.parent.name != "config"]
    found = {str(file.relative_to(ROOT)): reads(file) for file in files}
    wrong = {file: lines for file, lines in found.items() if lines and file not in READERS}
    assert not wrong


def test_a_plan_holds_the_configuration_as_a_whole_alone():
    """`Plan.request` is written beside the result; nobody opens it."""
    for file in sorted(ROOT.rglob("*.py")):
        assert "request.config" not in file.read_text(encoding="utf-8"), file
