"""Tables of options with their types and defaults, from dataclasses, signatures and YAML files."""

import ast
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache
from itertools import pairwise
from typing import Any, get_args, get_origin, get_type_hints

from text import cell, notes, table

from ptrun.config import schema
from ptrun.config.build import target
from ptrun.config.components import shipped, spell
from ptrun.config.compose import compose_run
from ptrun.config.paths import conf_dir, describe, options

_KEY = re.compile(r"^( *)([A-Za-z_][\w/]*):(?: +(.*?))?(?: +# (.*))?$")
_HEADINGS = {
    "RunConfig": "",
    "TrainConfig": "train.",
    "SweepConfig": "sweep.",
    "PretrainingConfig": "pretraining.",
}
_ELSEWHERE = {*schema.GROUPS, "train", "sweep", "cluster", "pretraining"}  # of the root


def groups() -> str:
    """Return every group with its options and what each is."""
    parts = []
    for group in schema.LISTED:
        rows = [(f"`{group}={name}`", cell(describe(f))) for name, f in options(group).items()]
        parts.append(f"## {group}\n\n{table(('type', 'what it is'), rows)}")
    return "\n\n".join(parts)


def root() -> str:
    """Return the keys outside the groups: of the run, its training, a sweep, the start."""
    parts = []
    for name, prefix in _HEADINGS.items():
        title = f"`{prefix}KEY=`" if prefix else "Keys of a run"
        parts.append(f"## {title}\n\n{of_dataclass(getattr(schema, name), prefix)}")
    return "\n\n".join(parts)


def of_dataclass(made: Any, prefix: str) -> str:
    """Return the fields of a dataclass with types, defaults and what is written behind them."""
    said, hints = _field_docs(made), get_type_hints(made)
    rows = [
        (f"`{prefix}{f.name}`", cell(_type(hints[f.name])), _default(f), _said(f, hints, said))
        for f in fields(made)
        if f.name not in _ELSEWHERE
    ]
    if made is schema.RunConfig:
        rows.append(("`continue`", "str or null", "`null`", cell(_comment("continue"))))
    return table(("key", "type", "default", "meaning"), rows)


def _comment(key: str) -> str:
    """Return the comment of a key of `conf/run.yaml`, which may have several lines."""
    text = (conf_dir() / "run.yaml").read_text("utf-8")
    found = re.search(rf"^{key}:.*?# (.*(?:\n +# .*)*)", text, re.MULTILINE)
    return re.sub(r"\n +# ", " ", found[1]) if found else ""


def _said(field: Any, hints: Mapping[str, Any], said: Mapping[str, str]) -> str:
    """Return the meaning of a field; that of its kind of value if the field has none of its own."""
    kind = hints[field.name]
    own = kind.__doc__ if inspect.isclass(kind) and hasattr(kind, "__members__") else ""
    return cell(said.get(field.name) or inspect.cleandoc(own or ""))


def _default(field: Any) -> str:
    if field.default is MISSING and field.default_factory is MISSING:
        return ""
    value = field.default if field.default is not MISSING else field.default_factory()
    return f"`{_yaml(value)}`" if value != "" else ""


def _field_docs(made: Any) -> dict[str, str]:
    """Return the texts that stand behind the fields of a dataclass."""
    (body,) = (n.body for n in ast.parse(inspect.getsource(made)).body if hasattr(n, "body"))
    found = {}
    for field, behind in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(behind, ast.Expr):
            found[ast.unparse(field.target)] = inspect.cleandoc(ast.literal_eval(behind.value))
    return found


def method(name: str) -> str:
    """Return the options of a method and of its training, with defaults and comments."""
    node, train = _node(name), _train(name)
    hints, said = _hints(target("method", node)), comments("method", name)
    rows = [
        (f"`method.{k}`", cell(_type(hints.get(k, Any))), f"`{_yaml(v)}`", cell(said.get(k, "")))
        for k, v in node.items()
        if k != "_target_"
    ]
    rows += [(f"`train.{k}`", "", f"`{v}`", cell(said.get(k, ""))) for k, v in train.items()]
    shown = table(("key", "type", "default", "meaning"), rows)
    return f"{shown}\n\n{notes(options('method')[name])}".rstrip()


def presets(name: str) -> str:
    """Return the files that change defaults of a method, with what they change."""
    base = _node(name)
    rows, more = [], []
    for other, file in options("method").items():
        node = _node(other)
        if other == name or node["_target_"] != base["_target_"]:
            continue
        changed = [f"{k}={_yaml(v)}" for k, v in node.items() if base.get(k, "") != v]
        shown = " ".join(f"`{text}`" for text in changed)
        rows.append((f"`method={other}`", cell(describe(file)), shown))
        if said := notes(file):
            more.append(f"**`method={other}`**\n\n{said}")
    head = table(("type", "what it is", "what it changes"), rows) if rows else "None."
    return "\n\n".join([head, *more])


@cache
def _node(name: str) -> Mapping[str, Any]:
    node: Mapping[str, Any] = compose_run([f"method={name}"]).components()["method"].node
    return node


def component(group: str) -> str:
    """Return the options of each class of a group, with types and defaults."""
    parts = []
    for path in sorted(shipped(group)):
        made = target(group, {"_target_": path})
        rows = list(_parameters(made))
        if rows:
            users = [o for o, f in options(group).items() if path in f.read_text("utf-8")]
            named = ", ".join(f"`{user}`" for user in users)
            head = f"### {path.rpartition('.')[2]}\n\n{_first_line(made)} Used by {named}."
            parts.append(f"{head}\n\n{table(('key', 'type', 'default', 'meaning'), rows)}")
    return "\n\n".join(parts)


def keys(group: str) -> str:
    """Return the keys of the default file of a group with their comments."""
    rows: dict[str, tuple[str, str, str]] = {}
    for name in options(group):
        for key, value, comment in _lines(group, name):
            rows.setdefault(key, (f"`{group}.{key}`", f"`{value}`", cell(comment)))
    return table(("key", "default", "meaning"), list(rows.values()))


def _parameters(made: Any) -> Iterator[Sequence[str]]:
    hints, said = _hints(made), _arguments(made)
    for name, parameter in inspect.signature(made).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY:
            needed = parameter.default is parameter.empty
            default = "needed" if needed else f"`{_yaml(parameter.default)}`"
            yield f"`{name}`", cell(_type(hints.get(name, Any))), default, cell(said.get(name, ""))


def _hints(made: Any) -> dict[str, Any]:
    found = get_type_hints(made.__init__)
    for hint in list(found.values()):
        for inner in get_args(hint):
            if hasattr(inner, "__required_keys__"):
                found |= get_type_hints(inner)
    return found


def _arguments(made: Any) -> dict[str, str]:
    """Return what the docstring of a class says about each argument."""
    text = inspect.cleandoc(made.__doc__ or "").partition("Args:\n")[2].split("\nRaises")[0]
    found: dict[str, str] = {}
    names: list[str] = []
    for line in text.splitlines():
        if head := re.match(r"    ([\w, ]+): (.*)", line):
            names = head[1].split(", ")
            found |= dict.fromkeys(names, head[2])
        elif line.startswith("     "):
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
    return found


def _first_line(made: Any) -> str:
    return inspect.cleandoc(made.__doc__ or "").split("\n\n")[0].replace("\n", " ")


def comments(group: str, name: str) -> dict[str, str]:
    """Return the comments of a file's keys; those of the files it starts from come first."""
    text = (conf_dir() / group / f"{name}.yaml").read_text("utf-8")
    found: dict[str, str] = {}
    for parent in re.findall(r"^  - (\w+)$", text, re.MULTILINE):
        found |= comments(group, parent) if parent != "_self_" else {}
    return found | {key: comment for key, _, comment in _lines(group, name) if comment}


def _lines(group: str, name: str) -> Iterator[tuple[str, str, str]]:
    for line in (conf_dir() / group / f"{name}.yaml").read_text("utf-8").splitlines():
        if (found := _KEY.match(line)) and found[2] not in ("_target_", "defaults", "method"):
            yield found[2], found[3] or "", found[4] or ""


def _train(name: str) -> Mapping[str, str]:
    """Return what a method's file sets of `train`, as it is written there."""
    text = (conf_dir() / "method" / f"{name}.yaml").read_text("utf-8")
    block = re.search(r"^train:\n((?:  .*\n)+)", text, re.MULTILINE)
    rows = [_KEY.match(line) for line in block[1].splitlines()] if block else []
    return {row[2]: row[3] for row in rows if row}


def _type(hint: Any) -> str:
    origin = get_origin(hint)
    if hint is Any:
        return "any"
    if inspect.isclass(hint) and hasattr(hint, "__members__"):
        return ", ".join(hint.__members__)
    if origin is None or origin is list:
        return spell(hint)
    return spell(hint).replace("one of ", "").replace("'", "").replace("NoneType", "null")


def _yaml(value: Any) -> str:
    """Return a value as it is typed."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_yaml, value))}]"
    return str(getattr(value, "value", value))
