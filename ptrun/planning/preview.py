"""The output of `ptrun check`: counts, lengths, labels and examples of a run."""

from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from statistics import median
from typing import Any

from rich import markup
from rich.console import Group
from rich.table import Table

from ptrun.errors import UserError, readable, visible
from ptrun.method.base import Method
from ptrun.pattern.encoding import Encoder
from ptrun.pattern.pattern import read_pvps
from ptrun.planning.cards import needed
from ptrun.planning.costs import Costs, texts
from ptrun.planning.memory import GIB, devices_here, layout_of
from ptrun.readout.base import Features, TokenRow, unlimited
from ptrun.readout.languages import tokenizer_of
from ptrun.readout.patterns import worded
from ptrun.runs.examples import split_of, usable
from ptrun.runs.plan import Plan
from ptrun.task.columns import in_parts, targets_of
from ptrun.task.dataset import MESSAGES, Task
from ptrun.task.protocol import unseen
from ptrun.training.member import check_select
from ptrun.types import Example

_SHOWN, _CLASSES = 3, 12
_SIGNS = {
    "learned": ("[green]«", "»[/green]"),
    "end": ("[cyan]⟦", "⟧[/cyan]"),
    "context": ("[dim]", "[/dim]"),
}


def escape(text: str) -> str:
    """Return text of the user's data that neither rich nor a terminal interprets."""
    return markup.escape(visible(text))


def preview(planned: Plan, afterwards: Callable[..., str]) -> Group:
    """Return the output of `ptrun check`; `afterwards` is that of the stock forms."""
    method = planned.build_method()
    check_select(planned.train, method)
    examples, shared = split_of(planned)
    split = usable(method, examples)
    # 1. Counts and lengths
    writes = method.readout.writes
    shown = "learned tokens: median, most" if writes else "labels"
    counts = Table("part", "examples", "tokens: median, most", "cut", shown, "origin")
    for name in ("train", "dev", "test"):
        part = getattr(split, name)
        lengths, answers, cut = _measured(method, part)
        learned = _spread(answers) if writes else _labels(part)
        origin = escape(split.origin.get(name, ""))
        counts.add_row(name, f"{len(part):,}", _spread(lengths), f"{cut:,}", learned, origin)
    # 2. A few examples as the model reads them, and the first under each pattern of the task
    few = (split.train or split.test)[:_SHOWN]
    rows, tokenizer = method.encode(few) if few else [], method.backbone.tokenizer()
    body: list[str] = []
    if few and MESSAGES in few[0].fields:
        body.append("\n" + " ".join(f"{a}{kind}{b}" for kind, (a, b) in _SIGNS.items()))
    for example, features in zip(few, rows, strict=False):
        body.append(f"\n{escape(example.id)} → {escape(_answer(planned.task, example))}")
        if MESSAGES in example.fields:
            body.append(_turns(tokenizer, features))
        else:
            body += [_marked(tokenizer, row) for row in features.rows]
    body += _patterns(method, few[0].fields) if few else []
    # 3. What was read, and what may be wrong
    title = " · ".join([*planned.names.values(), f"metric {planned.task.metric}"])
    accounts = " · ".join(f"{name} {account}" for name, account in planned.task.accounts.items())
    read = [f"read: {accounts}"] if accounts else []  # a task may not count rows
    doubts = [*shared.warnings, *unseen(planned.task, examples)]
    doubts.append(afterwards(method, rows[:1], keeps_weights=planned.request.keep.has_weights))
    layout = layout_of(planned.request)
    size = needed(Costs(planned, texts(planned, None, split)), layout)
    for device in [device for device in devices_here(None) if device.kind == layout.device][:1]:
        fits = f"{device.verdict(size)} on {device.name}"
        doubts.append(f"Memory: {size / GIB:.2f} GiB by formula, {fits}; see ptrun plan.")
    return Group(title, *map(escape, read), counts, *map(escape, doubts), *body)


def _answer(task: Task, example: Example) -> str:
    """Return the target of an example as text: of tagged words `word/TAG`."""
    if task.answer not in ("tags", "word_labels"):
        return str(example.target)
    pairs = zip(example.fields[task.fields[0]], example.target, strict=True)
    return " ".join(f"{word}/{tag}" for word, tag in pairs)


def _measured(
    method: Method, examples: Sequence[Example]
) -> tuple[Sequence[int], Sequence[int], int]:
    """Return the lengths of all rows and learned texts, and how many examples are cut."""
    lengths, answers, cut = array("i"), array("i"), 0
    free = unlimited(method.readout)
    for some in in_parts(examples):  # few are held at once
        features, uncut = method.encode(some), free.encode(some, 10**6)
        lengths.extend(len(row.ids) for f in features for row in f.rows)
        pairs = zip(features, uncut, strict=True)
        cut += sum(f.tokens < all_.tokens or f.facts.get("cut", False) for f, all_ in pairs)
        answers.extend(len(f.targets) for f in features if f.targets and method.readout.writes)
    return lengths, answers, cut


def _spread(lengths: Sequence[int]) -> str:
    return f"{median(lengths):.0f}, {max(lengths)}" if lengths else "0, 0"


def _labels(examples: Sequence[Example]) -> str:
    """Return the most frequent targets with their counts."""
    counts: Counter[str] = Counter()
    none = 0
    for target in targets_of(examples):
        several = target if isinstance(target, list) else [target]
        counts.update(str(t) for t in several if isinstance(t, str | int))
        none += several == []
    counts.update({"no answer": none} if none else {})
    shown = [f"{name} {count:,}" for name, count in counts.most_common(_CLASSES)]
    return escape(", ".join(shown)) + (" …" if len(counts) > _CLASSES else "")


def _marked(tokenizer: Any, row: TokenRow) -> str:
    """Return the tokens of a row: read positions are reversed, and `<soft>` is a learned vector.

    The tokens of a decoder follow an arrow. If every token is read, none is reversed.
    """
    tokens = [escape(t) for t in tokenizer.convert_ids_to_tokens(row.ids)]
    for place in row.softs:
        tokens[place] = "[bold]<soft>[/bold]"
    text, reads = "", row.reads if len(row.reads) < len(tokens) else []
    if row.decoder is not None:
        text, reads = f"{' '.join(tokens)} → ", row.reads
        tokens = [escape(t) for t in tokenizer.convert_ids_to_tokens(row.decoder)]
    for place in {*reads}:
        tokens[place] = f"[reverse]{tokens[place]}[/reverse]"
    return text + " ".join(tokens)


def _turns(tokenizer: Any, features: Features) -> str:
    """Return the text of a conversation: «learned», ⟦the ends of turns⟧, and context."""
    (row,) = features.rows
    ids, learned = list(row.ids), {place + 1 for place in row.reads} if features.targets else ()
    if len(ids) in learned:  # it predicts no further token, and is no input
        ids.append(features.targets[-1])
    ends, text = features.facts.get("ends", ()), ""
    kinds = [
        "end" if i in ends else "learned" if i in learned else "context" for i in range(len(ids))
    ]
    for kind, run in groupby(range(len(ids)), kinds.__getitem__):
        part = markup.escape(readable(tokenizer.decode([ids[i] for i in run])))
        before, after = _SIGNS[kind]
        text += f"{before}{part}{after}"
    return text


def _patterns(method: Method, fields: Mapping[str, Any]) -> list[str]:
    """Return an example under each pattern of the task."""
    task, lines = method.task, list[str]()
    tokenizer = tokenizer_of(method.backbone, task)
    encoder = Encoder(tokenizer, left_to_right=method.backbone.architecture.left_to_right)
    for pvp in read_pvps(task.pvps, worded(task)).values() if task.pvps else ():
        try:
            row = encoder.encode(pvp.render(fields), method.room(), rule=pvp.shorten)
        except UserError as error:
            lines.append(f"\npvp {escape(pvp.name)}: {markup.escape(str(error))}")
            continue
        cut = f", {row.cut} tokens cut" if row.cut else ""
        marked = _marked(tokenizer, TokenRow(row.ids, None, row.masks, row.softs))
        lines.append(f"\npvp {escape(pvp.name)}{cut}\n{marked}")
    return lines
