"""The examples of a run: drawn, compared, and divided into parts that are learned separately."""

import logging
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from ptrun.errors import UserError
from ptrun.folder import result
from ptrun.method.base import Method
from ptrun.readout.base import Features
from ptrun.runs.plan import Plan
from ptrun.start.pretraining import is_made
from ptrun.task.columns import part_of
from ptrun.task.dataset import MESSAGES
from ptrun.task.protocol import Overlaps, overlaps
from ptrun.training.health import words_in_pieces
from ptrun.training.member import Member
from ptrun.types import Example, Split

_LOG = logging.getLogger(__name__)


def split_of(planned: Plan) -> tuple[Split, Overlaps]:
    """Return the examples of a run, and the texts that train, dev and test share.

    The protocol makes the split, and the setting reduces it.
    """
    task, data_seed = planned.task, planned.data_seed
    split = planned.protocol.split(task, data_seed)
    if planned.variant:
        files = f"files of {planned.variant}"
        split = replace(split, origin={**split.origin, "train": files, "dev": files})
    split = _bounded(planned.setting.choose(split, data_seed), planned.train.eval_rows, data_seed)
    if task.pvps_from:
        from ptrun.pattern.pattern import check_pvps

        check_pvps(task.pvps, task.labels, split.test[0].fields, task.pvps_from)
    if hasattr(task, "signatures"):  # refuses metrics that cannot compare these texts
        for examples in filter(None, (split.dev, split.test)):
            task.signatures(examples)
    shared = overlaps(split)
    same = "dev/test" in shared.identical
    if same and planned.request.trial is not None:
        raise UserError(
            f"search: dev and test of task={task.name} hold the same texts here, so the "
            "search would choose by what it reports.\nType protocol=honest."
        )
    if same and planned.protocol.disjoint:
        raise UserError(
            f"task={task.name}: dev and test hold the same texts, so the test score would "
            "be biased.\nGive another task.dev or task.test, or type protocol=paper."
        )
    _compare_start(planned)
    return split, shared


def _bounded(split: Split, most: int | None, data_seed: int) -> Split:
    """Return the split with at most `train.eval_rows` dev examples, in file order."""
    count = len(split.dev)
    if most is None or count <= most:
        return split
    places = sorted(random.Random(f"eval rows:{data_seed}").sample(range(count), most))
    origin = {**split.origin, "dev": f"{most:,} of {count:,} examples, {split.origin.get('dev')}"}
    _LOG.info("dev: %s of %s examples are evaluated (train.eval_rows)", f"{most:,}", f"{count:,}")
    return replace(split, dev=part_of(split.dev, places), origin=origin)


def _compare_start(planned: Plan) -> None:
    """Warn if the run that a prompt starts from may have seen the examples of dev or test."""
    folder = None if planned.start.told else planned.start.folder  # that says it in its own words
    made = any(is_made(other.request.task) for other in planned.needs)  # of no examples from here
    if folder is None or made or not planned.protocol.disjoint:
        return
    before = result.read(folder)
    for key in ("protocol", "data_seed"):
        if before and before.config.get(key) != planned.content[key]:
            _LOG.warning(
                "start=run:%s has another %s: it may have trained or selected on examples that are "
                "dev or test here",
                *(before.run_id, key),
            )


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
    if method.readout.teaches:  # with all of them, some, or more
        taught = method.readout.teaching(train, method.room())
        left_out = len(train) - len(taught)
        if left_out > 0:
            _LOG.info("%d of %d training examples are left out", left_out, len(train))
        train = taught
    remaining = replace(split, train=train, dev=dev, test=test)
    left_out = len(split.test) - len(test)
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
    method.prime(train)
    return remaining


_SOME = 500  # test examples whose added tokens are counted


def tokens_added(
    method: Method, examples: Sequence[Example], features: Sequence[Features]
) -> float | None:
    """Return the positions that a request has beside its own text, the median over examples.

    They are learned vectors, words of a pattern and demonstrations; the text is its fields joined
    by blanks, with the special tokens of the tokenizer. None for conversations.
    """
    if MESSAGES in method.task.fields or not examples:
        return None
    fields, added = method.task.fields, method.positions_added
    pairs = list(zip(examples, features, strict=False))[:_SOME]
    texts = [" ".join(str(example.fields[name]) for name in fields) for example, _ in pairs]
    plain = method.backbone.tokenizer()(texts).input_ids
    return median(
        f.tokens + added * len(f.rows) - len(ids) for (_, f), ids in zip(pairs, plain, strict=True)
    )
