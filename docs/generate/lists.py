"""Lists that pages take from the program: kinds, metrics, models, methods, extras."""

import inspect
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import yaml
from text import cell, table

from ptrun.backbone import causal, masked, seq2seq
from ptrun.config.build import target
from ptrun.config.components import shipped
from ptrun.config.paths import describe, options
from ptrun.task import own

DOCS = Path(__file__).parents[1]
_EXAMPLES = 2
_EXTRA = re.compile(r"^(\w+) = \[.*\] *# (.*)$", re.MULTILINE)
_FAMILIES = {"encoders": masked, "causal models": causal, "encoder-decoders": seq2seq}


def group(name: str) -> str:
    """Return the options of a group and what each is."""
    rows = [(f"`{name}={n}`", cell(describe(file))) for n, file in options(name).items()]
    return table(("type", "what it is"), rows)


def kinds() -> str:
    """Return the kinds of task: what the rows are, the class to name, and shipped examples."""
    users = defaultdict(list)
    for name, file in options("task").items():
        users[yaml.safe_load(file.read_text("utf-8")).get("_target_")].append(name)
    rows = []
    for path in sorted(shipped("task") & users.keys()):
        made = target("task", {"_target_": path})
        if hasattr(made, "kind") and hasattr(made, "answer"):
            examples = sorted(users[path], key=lambda name: name.startswith("pocket_"))[:_EXAMPLES]
            what = inspect.cleandoc(made.__doc__ or "").split("\n\n")[0]
            rows.append((cell(what), f"`{path}`", _code(examples)))
    return table(("rows", "`_target_`", "shipped examples"), rows)


def metrics() -> str:
    """Return the values of `task.metric` by the kind of label; the first is the default."""
    rows = [
        ("`task.answer`, `task.messages`" if kind == "generation" else f"`task.kind={kind}`", names)
        for kind, names in own._METRICS.items()
    ]
    return table(("rows with", "`task.metric`"), [(key, _code(names)) for key, names in rows])


def models() -> str:
    """Return the model types with an entry, those of an option, and those that the table tried."""
    rows = [(name, _code(room.KINDS)) for name, room in _FAMILIES.items()]
    known = {kind for room in _FAMILIES.values() for kind in room.KINDS}
    named = {}
    for name, file in options("backbone").items():
        for kind in yaml.safe_load(file.read_text("utf-8")).get("families", {}):
            named[kind] = f"`{kind}` (`backbone={name}`)"
    rows.append(("of the papers", ", ".join(named[kind] for kind in named if kind not in known)))
    tried = (DOCS.parent / "benchmarks/results/model_types.md").read_text("utf-8")
    for what, cells in (
        ("traced, and tried", r"([\w-]+) \| traced"),
        ("closed layers, tried", r"([\w-]+) \| closed"),
        ("text part, tried", r"text of ([\w-]+) \| \w"),
    ):
        rows.append((what, _code(re.findall(rf"^\| {cells}", tried, re.MULTILINE))))
    return table(("models", "`model_type` of config.json"), rows)


def methods() -> str:
    """Return the methods in the order of the navigation, with the first words of their pages."""
    nav = re.findall(r"methods/(\w+)\.md", (DOCS.parent / "mkdocs.yml").read_text("utf-8"))
    rows = []
    for name in nav[1:]:
        title, what = (DOCS / f"methods/{name}.md").read_text("utf-8").split("\n\n")[:2]
        rows.append((f"[{title.removeprefix('# ')}]({name}.md)", cell(what)))
    return table(("method", "what it does"), rows)


def extras() -> str:
    """Return the extras of pyproject.toml: what needs each, and the pages that say so."""
    text = (DOCS.parent / "pyproject.toml").read_text("utf-8")
    block = text.partition("[project.optional-dependencies]")[2].partition("\nall = ")[0]
    pages = {page: page.read_text("utf-8") for page in sorted(DOCS.rglob("*.md"))}
    rows = []
    for name, needed in _EXTRA.findall(block):
        links = [
            f"[{said.splitlines()[0].removeprefix('# ')}](../{page.relative_to(DOCS).as_posix()})"
            for page, said in pages.items()
            if f"ptrun[{name}]" in said
        ]
        rows.append((f"`{name}`", cell(needed), ", ".join(links)))
    return table(("extra", "what needs it", "page"), rows)


def measured() -> str:
    """Return the pages of measurements in the repository, with their first words."""
    rows = []
    for page in sorted((DOCS.parent / "benchmarks/results").glob("*.md")):
        first = page.read_text("utf-8").lstrip("# \n").splitlines()[0]
        rows.append((f"`benchmarks/results/{page.name}`", cell(first)))
    return table(("page", "subject"), rows)


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
