"""Class words of hundreds of classes: down a tree, a row at each node (hierarchical DPT).

    root      [CLS] its blade cuts Class: animal, tool. [SEP]
    tool      [CLS] its blade cuts Class: saw, cutter. [SEP]

Yao et al. 2022 suggest hierarchical prompts for many classes as future work; this design is ours.
Each inner node is ordinary DPT with its children as classes (`ptrun.readout.class_words`). A
training example has one row for each node on the path to its class, and the loss is over all
children of these nodes. Evaluation descends from the root and multiplies the scores on the path,
which favours short paths.
"""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path
from typing import Any, Union, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from ptrun.backbone.base import BackboneOutput
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError, names, near, shown
from ptrun.pattern.pattern import PVP, Pattern
from ptrun.readout.base import Batch, Features, WordReader, word_logits
from ptrun.readout.class_words import ClassWords, Direction, Share
from ptrun.task.dataset import Task
from ptrun.task.own import parse_yaml, text_of
from ptrun.types import Example, Prediction

# Trees of classes: an inner node is named by a word, a leaf is a label.
#
# animal: [cat, dog]      # readout.tree=@FILE, or {animal: [cat, dog], ...} in a method's file
# tool:   saw:                  # nothing below: a label beside an inner node   cutter: [knife,
# razor]

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


class ClassTree(WordReader, nn.Module):
    """The class at the end of the path whose words ELECTRA's head scores as the most original.

    Args:
        backbone, task: as in `ClassWords`.
        pvp: a pattern that lists its label words; at a node it lists the node's children.
        tree: over the task's labels.
        beam: how many paths are kept at each level; 1 takes the best child of each node.
        direction, bias, share, marker: of each node's `ClassWords`.

    Raises:
        UserError: `beam` is below 1.
    """

    teaches = True

    def __init__(
        self,
        backbone: PretrainedBackbone,
        task: Task,
        pvp: PVP,
        tree: Tree,
        *,
        beam: int = 1,
        direction: Direction = "one_minus_sigma",
        bias: bool = False,
        share: Share = "mean",
        marker: bool = False,
    ):
        super().__init__()
        if beam < 1:
            raise UserError(f"readout.beam is {beam}; use 1 or more.")
        self.backbone, self.pvp, self.beam, self.paths = backbone, pvp, beam, paths(tree)
        self.marker = marker
        inner, self.below = _inner(tree)
        pvps = [replace(pvp, words=_words(node, pvp.words or {})) for node in inner]
        self.nodes = nn.ModuleList(
            ClassWords(
                backbone, task, own, direction=direction, bias=bias, share=share, marker=marker
            )
            for own in pvps
        )

    def teaching(self, examples: Sequence[Example], room: int) -> list[Example]:
        """Return all examples, each with the path to its class as its target."""
        return [replace(example, target=self.paths[example.target]) for example in examples]

    @property
    def pattern(self) -> Pattern:
        """The pattern of a text."""
        return self.pvp.pattern

    def encode(self, examples: Sequence[Example], room: int) -> list[Features]:
        """Return one row for each node on the path, or the root's if the target is a label."""
        return [self._features(example, room) for example in examples]

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return binary cross-entropy summed over targets, one for each child of a node, `[]`."""
        z = batch.by_row(word_logits(output).flatten())
        right = torch.split(batch.targets, [len(own) for own in z])
        rows: dict[int, list[int]] = {}
        for row, node in enumerate(_nodes(batch)):
            rows.setdefault(node, []).append(row)
        costs = [
            self._node(node).cost(_stack(z, own), _stack(right, own)) for node, own in rows.items()
        ]
        return torch.stack(costs).sum()

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return the class of each example, or the rows of the next nodes on its best paths."""
        rows = zip(_nodes(batch), batch.by_row(word_logits(output).flatten()), strict=True)
        scored = torch.cat([self._node(node).scored(z[None])[0] for node, z in rows])
        odds = iter(batch.by_row(scored.cpu()))
        return [self._down(f, [next(odds) for _ in f.rows]) for f in batch.features]

    def _features(self, example: Example, room: int) -> Features:
        """Return the rows of an example; in evaluation also the facts to descend with."""
        trained = isinstance(example.target, list)
        path: list[Any] = example.target if trained else self.paths.get(example.target, [None])[:1]
        nodes = [0]
        for name in path[:-1]:
            nodes.append(self.below[nodes[-1]][name])
        parts = [(n, replace(example, target=name)) for n, name in zip(nodes, path, strict=True)]
        encoded = [self._node(node).encode([part], room)[0] for node, part in parts]
        facts: dict[str, Any] = {"nodes": nodes}
        if not trained:
            fields = {name: example.fields[name] for name in self.pvp.pattern.fields}
            facts |= {"fields": fields, "room": room, "scores": [0.0], "ended": []}
        rows, targets = [f.rows[0] for f in encoded], [t for f in encoded for t in f.targets]
        return Features(example.id, rows, targets, facts)

    def _down(self, features: Features, odds: Sequence[Tensor]) -> Prediction | Features:
        """Extend the best paths by one level; return the prediction when all have ended."""
        facts = features.facts
        ways: list[tuple[float, str, int | None]] = [(*way, None) for way in facts["ended"]]
        for node, score, own in zip(facts["nodes"], facts["scores"], odds, strict=True):
            logs = functional.logsigmoid(own.double()).tolist()
            ways += [
                (score + log, name, self.below[node].get(name))
                for name, log in zip(self._node(node).labels, logs, strict=True)
            ]
        best = sorted(ways, key=lambda way: -way[0])[: self.beam]
        going = [(score, node) for score, _, node in best if node is not None]
        if not going:
            return Prediction(features.id, best[0][1])
        example = Example(features.id, facts["fields"], None)
        encoded = [self._node(node).encode([example], facts["room"])[0] for _, node in going]
        ended = [[score, label] for score, label, node in best if node is None]
        on = {"nodes": [n for _, n in going], "scores": [s for s, _ in going], "ended": ended}
        return Features(features.id, [f.rows[0] for f in encoded], [], {**facts, **on})

    def _node(self, place: int) -> ClassWords:
        return cast(ClassWords, self.nodes[place])


def _inner(tree: Tree) -> tuple[list[Tree], list[dict[str, int]]]:
    """Return inner nodes level by level, and the places of each node's inner children by name."""
    nodes, places = [tree], []
    for node in nodes:  # the loop appends to it
        below = {name: own for name, own in node.items() if own is not None}
        places.append({name: len(nodes) + i for i, name in enumerate(below)})
        nodes += below.values()
    return nodes, places


def _words(node: Tree, words: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """Return the words of a node's children; an inner child's name is its word."""
    return {name: words[name] if below is None else [name] for name, below in node.items()}


def _nodes(batch: Batch) -> list[int]:
    return [node for f in batch.features for node in f.facts["nodes"]]


def _stack(values: Sequence[Tensor], rows: Sequence[int]) -> Tensor:
    return torch.stack([values[row] for row in rows])
