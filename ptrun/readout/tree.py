"""Trees of classes: an inner node is named by a word, a leaf is a label.

animal: [cat, dog]      # readout.tree=@FILE, or {animal: [cat, dog], ...} in a method's file
tool:
  saw:                  # nothing below: a label beside an inner node
  cutter: [knife, razor]
"""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, pairwise
from pathlib import Path
from typing import Any, Union

from ptrun.errors import UserError
from ptrun.task.shown import names, near, shown
from ptrun.task.yaml_text import parse_yaml, text_of

Tree = dict[str, Union["Tree", None]]
"""The nodes below the root: a word with the nodes below it, or a label with None."""

_MOST_BYTES = 1_000_000
_KEY = "readout.tree"
_EXPECTED = "expected YAML or JSON such as {animal: [cat, dog], tool: [saw, axe]}"
_QUOTE = 'a word or label is text: write a bare number, yes, no, true or false in quotes, "1"'


def read_tree(value: Any, labels: Sequence[str]) -> Tree:
    """Return the tree of a configured value: the tree itself, or @FILE.

    Raises:
        UserError: there is no such file, it is not YAML, an inner node has no word or fewer than
            two children, or the leaves are not the labels, each once.
    """
    where, content = (value, _content(value)) if isinstance(value, str) else (_KEY, value)
    tree = _node(content, where.removeprefix("@"), "the root")
    _check_leaves(tree, labels, where.removeprefix("@"))
    return tree


def made_tree(words: Mapping[str, str], fan_out: int) -> Tree:
    """Return a balanced tree over labels in their order; an inner node has its first label's word.

    It has the fewest levels with at most `fan_out` children for each node, and then the fewest
    children with that number of levels: 200 labels at 16 are 15 nodes of 13 or 14.

    Raises:
        UserError: `fan_out` is below 2.
    """
    if fan_out < 2:
        raise UserError(f"readout.fan_out is {fan_out}; a node needs 2 classes or more below it.")
    labels = list(words)
    levels = next(d for d in count(1) if fan_out**d >= len(labels))
    if levels == 1:
        return dict.fromkeys(labels)
    groups = next(b for b in count(2) if b**levels >= len(labels))
    edges = [len(labels) * group // groups for group in range(groups + 1)]
    tree: Tree = {}
    for own in (labels[start:end] for start, end in pairwise(edges)):
        below = made_tree({label: words[label] for label in own}, fan_out)
        name = words[own[0]] if len(own) > 1 else own[0]
        if name in tree:
            raise UserError(f"{name!r} is a label and another label's word; use another word.")
        tree[name] = below if len(own) > 1 else None
    return tree


def paths(tree: Tree) -> dict[str, list[str]]:
    """Return the path to each label: the words of the inner nodes, then the label."""
    found: dict[str, list[str]] = {}
    for name, below in tree.items():
        own = {name: []} if below is None else paths(below)
        found |= {label: [name, *rest] for label, rest in own.items()}
    return found


def _content(value: str) -> Any:
    """Return the YAML of @FILE."""
    if not value.startswith("@"):
        found = f"a file; type {_KEY}=@{value}" if os.path.isfile(value) else "no tree"
        raise UserError(f"{_KEY}={value} is {found}; {_EXPECTED}, or @FILE.")
    file = Path(os.path.expanduser(value[1:]))
    try:
        return parse_yaml(text_of(file, _MOST_BYTES, f"no tree of classes; {_EXPECTED}"))
    except ValueError as error:
        raise UserError(f"{file}: not YAML ({error}); {_EXPECTED}.") from error


def _node(content: Any, where: str, name: str) -> Tree:
    """Return the nodes below a node, from a list or a mapping."""
    tree: Tree = {}
    for child, below in _children(content, where, name):
        if not isinstance(child, str) or not child.strip():
            raise UserError(f"{where}: {shown(child)} below {name}: {_QUOTE}.")
        if child in tree:
            raise UserError(f"{where}: {shown(child)} is twice below {name}; name it once.")
        tree[child] = None if below is None else _node(below, where, shown(child))
    if len(tree) < 2:
        raise UserError(
            f"{where}: {name} has {names(tree) or 'nothing'} below it, but a node needs two "
            "children or more; replace the node by its child, or add children."
        )
    return tree


def _children(content: Any, where: str, name: str) -> Iterator[tuple[Any, Any]]:
    """Yield the children of a node, each with the content below it."""
    if not isinstance(content, list | dict):
        raise UserError(f"{where}: below {name} is {shown(content)}; {_EXPECTED}.")
    for entry in [content] if isinstance(content, dict) else content:
        if isinstance(entry, list):
            raise UserError(
                f"{where}: below {name} is {shown(entry)}, an inner node without a word; "
                "write WORD: before it."
            )
        yield from entry.items() if isinstance(entry, dict) else [(entry, None)]


def _check_leaves(tree: Tree, labels: Sequence[str], where: str) -> None:
    known, counts = set(labels), Counter(_leaves(tree))
    missing = [label for label in labels if label not in counts]
    repeated = [label for label, number in counts.items() if number > 1]
    unknown = [leaf for leaf in counts if leaf not in known]
    faults = {"lacks": missing, "repeats": repeated, "has unknown classes:": unknown}
    if any(faults.values()):
        texts = [f"{fault} {names(leaves)}" for fault, leaves in faults.items() if leaves]
        hint = near(unknown[0], missing or labels) if unknown else ""
        raise UserError(
            f"{where}: the tree {'; '.join(texts)}{hint}\nIts leaves must be the {len(labels)} "
            "classes of the task, each once."
        )


def _leaves(tree: Tree) -> Iterator[str]:
    for name, below in tree.items():
        yield from [name] if below is None else _leaves(below)
