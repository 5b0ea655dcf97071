"""Class words of hundreds of classes: down a tree, a row at each node (hierarchical DPT).

    root      [CLS] its blade cuts Class: animal, tool. [SEP]
    tool      [CLS] its blade cuts Class: saw, cutter. [SEP]

Yao et al. 2022 suggest hierarchical prompts for many classes as future work; this design is ours.
Each inner node is ordinary DPT with its children as classes (`ptrun.readout.class_words`). A
training example has one row for each node on the path to its class, and the loss is over all
children of these nodes. Evaluation descends from the root and multiplies the scores on the path,
which favours short paths.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from ptrun.backbone.base import BackboneOutput
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.prompt.pattern import Pattern
from ptrun.prompt.pvp import PVP
from ptrun.readout.base import Batch, Features, WordReader, word_logits
from ptrun.readout.class_words import ClassWords, Direction, Share
from ptrun.readout.tree import Tree, paths
from ptrun.task.base import Task
from ptrun.types import Example, Prediction


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
        self.written = json.dumps(tree)  # what rows depend on: see `ptrun.runs.token_cache`
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
