"""Trees of classes: an inner node is called by a word of its own, a leaf is a label.

animal: [cat, dog]      # method.class_tree=@FILE, or {animal: [cat, dog], ...} in a method's file
tool:
  saw:                  # nothing follows: a label beside an inner node
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
"""What is below the root: a word and what is below it, or a label and nothing."""

_MOST_BYTES = 1_000_000
_KEY = "method.class_tree"
_EXPECTED = "expected YAML or JSON such as {animal: [cat, dog], tool: [saw, axe]}"
_QUOTE = 'a word or label is text: write a bare number, yes, no, true or false in quotes, "1"'


def read_tree(given: Any, labels: Sequence[str]) -> Tree:
    """Return the tree that was given, or that the file after an @ holds.

    Raises:
        UserError: there is no such file, it is not YAML, an inner node has no word or nothing to
            choose from, or the leaves are not the labels, each once.
    """
    where, content = (given, _content(given)) if isinstance(given, str) else (_KEY, given)
    tree = _node(content, where.removeprefix("@"), "the root")
    _check_leaves(tree, labels, where.removeprefix("@"))
    return tree


def made_tree(words: Mapping[str, str], fan_out: int) -> Tree:
    """Return a balanced tree over labels in their order; an inner node has its first label's word.

    It has as few levels as `fan_out` children a node allow, and then as few children a node as
    these levels allow: 200 labels at 16 are 15 nodes of 13 or 14.

    Raises:
        UserError: `fan_out` is below 2.
    """
    if fan_out < 2:
        raise UserError(f"method.fan_out is {fan_out}; a node needs 2 classes or more below it.")
    labels = list(words)
    levels = next(d for d in count(1) if fan_out**d >= len(labels))
    if levels == 1:
        return dict.fromkeys(labels)
    groups = next(b for b in count(2) if b**levels >= len(labels))
    made: Tree = {}
    for own in _shared(labels, groups):
        below = made_tree({label: words[label] for label in own}, fan_out)
        name = words[own[0]] if len(own) > 1 else own[0]
        if name in made:
            raise UserError(f"{name!r} is a label and another's word; use another word.")
        made[name] = below if len(own) > 1 else None
    return made


def paths(tree: Tree) -> dict[str, list[str]]:
    """Return what leads to each label: the words on the way, and the label itself."""
    found: dict[str, list[str]] = {}
    for name, below in tree.items():
        own = {name: []} if below is None else paths(below)
        found |= {label: [name, *rest] for label, rest in own.items()}
    return found


def _content(given: str) -> Any:
    """Return what the file after an @ says."""
    if not given.startswith("@"):
        found = f"a file; type {_KEY}=@{given}" if os.path.isfile(given) else "no tree"
        raise UserError(f"{_KEY}={given} is {found}; {_EXPECTED}, or @FILE.")
    file = Path(os.path.expanduser(given[1:]))
    try:
        return parse_yaml(text_of(file, _MOST_BYTES, f"no tree of classes; {_EXPECTED}"))
    except ValueError as error:
        raise UserError(f"{file}: not YAML ({error}); {_EXPECTED}.") from error


def _node(content: Any, where: str, name: str) -> Tree:
    """Return what is below a node, its forms made one."""
    tree: Tree = {}
    for child, below in _children(content, where, name):
        if not isinstance(child, str) or not child.strip():
            raise UserError(f"{where}: {shown(child)} below {name}: {_QUOTE}.")
        if child in tree:
            raise UserError(f"{where}: {shown(child)} stands twice below {name}; name it once.")
        tree[child] = None if below is None else _node(below, where, shown(child))
    if len(tree) < 2:
        raise UserError(
            f"{where}: {name} has {names(tree) or 'nothing'} below it, and nothing to choose from; "
            "put what is below a node in its place, or name more there."
        )
    return tree


def _children(content: Any, where: str, name: str) -> Iterator[tuple[Any, Any]]:
    """Yield what stands below a node, and what below that."""
    if not isinstance(content, list | dict):
        raise UserError(f"{where}: below {name} stands {shown(content)}; {_EXPECTED}.")
    for entry in [content] if isinstance(content, dict) else content:
        if isinstance(entry, list):
            raise UserError(
                f"{where}: below {name} stands {shown(entry)}, an inner node without a word; "
                "write WORD: before it."
            )
        yield from entry.items() if isinstance(entry, dict) else [(entry, None)]


def _check_leaves(tree: Tree, labels: Sequence[str], where: str) -> None:
    leaves = list(_leaves(tree))
    known, counts = set(labels), Counter(leaves)
    missing = [label for label in labels if label not in counts]
    wrong = {
        "misses": missing,
        "repeats": [label for label, number in counts.items() if number > 1],
        "names what is no class:": [leaf for leaf in counts if leaf not in known],
    }
    told = [f"{fault} {names(found)}" for fault, found in wrong.items() if found]
    if told:
        stray = wrong["names what is no class:"]
        hint = near(stray[0], missing or labels) if stray else ""
        raise UserError(
            f"{where}: the tree {'; '.join(told)}{hint}\nIts leaves must be the {len(labels)} "
            "classes of the task, each once."
        )


def _leaves(tree: Tree) -> Iterator[str]:
    for name, below in tree.items():
        yield from [name] if below is None else _leaves(below)


def _shared(labels: Sequence[str], groups: int) -> Iterator[Sequence[str]]:
    """Yield neighbours together, in groups whose sizes differ by one at most."""
    edges = [len(labels) * group // groups for group in range(groups + 1)]
    yield from (labels[a:b] for a, b in pairwise(edges))
