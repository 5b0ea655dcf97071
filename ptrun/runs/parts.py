"""The parts of a run that are learned separately: one, or one for each relation of LAMA."""

import json
import logging
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from ptrun.errors import UserError
from ptrun.method.base import Method
from ptrun.runs.plan import Plan
from ptrun.training.health import words_in_pieces
from ptrun.training.member import Member
from ptrun.types import Split

_LOG = logging.getLogger(__name__)


@dataclass
class Part:
    """The examples of one member, the method that learns them, and the member once it is made.

    `left_out` is the number of test examples whose answer is not one token of the backbone.
    """

    name: str
    split: Split
    left_out: int = 0
    method: Method = field(init=False)
    member: Member = field(init=False)

    @property
    def prefix(self) -> str:
        """The prefix of the part's tensor names."""
        return f"{self.name}/" if self.name else ""


def divide(method: Method, split: Split) -> list[Part]:
    """Return the parts of a split: one for each relation if the method has `per_relation`.

    A relation without train, dev or test examples is left out with a warning.

    Raises:
        UserError: no part is left.
    """
    usable_split = usable(method, split)
    left_out = len(split.test) - len(usable_split.test)
    if not getattr(method, "per_relation", False):
        return [Part("", usable_split, left_out)]
    counts = Counter(str(e.group) for e in split.test)
    parts = []
    for name in dict.fromkeys(str(e.group) for e in usable_split.test):
        train, dev, test = (
            [example for example in examples if str(example.group) == name]
            for examples in (usable_split.train, usable_split.dev, usable_split.test)
        )
        relation = replace(usable_split, train=train, dev=dev, test=test)
        parts.append(Part(name, relation, counts[name] - len(test)))
    complete = [part for part in parts if part.split.train and part.split.dev]
    for name in sorted({part.name for part in parts} - {part.name for part in complete}):
        _LOG.warning("relation %s has no train or dev examples and is left out", name)
    if not complete:
        raise UserError("No relation has train, dev and test examples. Use another setting.")
    return complete


def usable(method: Method, split: Split) -> Split:
    """Return the examples that a read-out can predict and learn from.

    As in LAMA, an example is left out if its answer has several tokens. A warning gives the count;
    another names label words that the vocabulary cuts into pieces.

    Raises:
        UserError: no example is left.
    """
    if warning := words_in_pieces(method.readout, method.task):
        _LOG.warning("%s", warning)
    train, dev, test = map(method.readout.answerable, (split.train, split.dev, split.test))
    remaining = _teaching(method, replace(split, train=train, dev=dev, test=test))
    left_out = len(split.test) - len(remaining.test)
    if left_out:
        _LOG.warning(
            "%d of %d test examples are left out: their answer is not one token, or not an "
            "allowed one",
            *(left_out, len(split.test)),
        )
    if not remaining.test:
        raise UserError(
            f"backbone={method.backbone.name}: no answer of the task is one token, or none is "
            "allowed."
        )
    if split.train and not remaining.train:
        raise UserError(
            f"This method cannot learn from any of the {len(split.train)} training examples."
        )
    return remaining


def _teaching(method: Method, split: Split) -> Split:
    """Return the split with the training examples of the read-out: all, some, or more."""
    if not method.readout.teaches:
        return split
    taught = method.readout.teaching(split.train, method.room())
    left_out = len(split.train) - len(taught)
    if left_out > 0:
        _LOG.info("%d of %d training examples are left out", left_out, len(split.train))
    return replace(split, train=taught)


# The shape of a run: what the runs of a group, which share passes of one backbone, have in common.
#
# That is the backbone, task, precision and the options of the method. They may differ in what a
# member of a population decides on its own: seeds, examples, start, all of `train`, and the options
# that a method lists in `may_differ`.

_OWN = ("seed", "data_seed", "setting", "start", "train", "trial", "method", "backbone", "data")
_READOUT = "readout"


def shape(planned: Plan) -> str | None:
    """Return what the runs of a group have in common; None if the run is done alone."""
    method: Any = planned.method.target
    shared = method.shares(planned.method.node, planned.backbone)
    reading: Any = planned.readout.build()
    alone = planned.start.tuned is not None or planned.hardware.divides or reading.whole
    if shared is None or alone:
        return None
    common = {k: v for k, v in planned.content.items() if k not in (*_OWN, _READOUT)}
    read = {k: v for k, v in planned.readout.node.items() if k not in reading.may_differ}
    # a pooler that the files lack is a part of the backbone
    random_pooler = read.get("pooler") == "frozen" and not planned.backbone.has_pooler
    facts = {
        "common": common,
        "method": shared,
        "backbone": [planned.content["backbone"], planned.backbone_path],
        "commit": hub.recorded if (hub := planned.backbone.repository) else None,
        _READOUT: read,
        "pooler": planned.seed if random_pooler else None,
        "hardware": planned.engine_component.node,
        "tracking": planned.tracking.node,
        "outputs": str(planned.request.outputs.absolute()),
    }
    return json.dumps(facts, sort_keys=True, default=str)
