"""The output of `ptrun check`: counts, lengths, labels and examples of a run."""

from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from rich import markup
from rich.console import Group
from rich.table import Table

from ptrun.errors import UserError, visible
from ptrun.method.base import Method
from ptrun.pattern.encoding import Encoder
from ptrun.pattern.pattern import PVP, read_pvps
from ptrun.readout.base import Features, Readout, TokenRow, unlimited
from ptrun.readout.reading import worded
from ptrun.runs.parts import usable
from ptrun.runs.plan import Plan, split_of
from ptrun.task.columns import in_parts, targets_of
from ptrun.task.protocol import unseen
from ptrun.training.member import check_select
from ptrun.types import Example

_SHOWN, _CLASSES = 3, 12


def escape(text: str) -> str:
    """Return text of the user's data that neither rich nor a terminal interprets."""
    return markup.escape(visible(text))


@dataclass(frozen=True)
class PreviewPart:
    """Train, dev or test, as examples and as tokens.

    `lengths` are of all rows, `cut` counts truncated examples, `features` are the first; `answers`
    are the lengths of texts to write.
    """

    name: str
    origin: str
    examples: Sequence[Example]
    lengths: Sequence[int]
    cut: int
    features: Sequence[Features]
    answers: Sequence[int]


def preview(planned: Plan, afterwards: Callable[..., str]) -> Group:
    """Return the output of `ptrun check`; `afterwards` is that of the stock forms.

    Raises:
        UserError: as a run would.
    """
    method = planned.method_over(planned.backbone, planned.task)
    check_select(planned.train, method)
    examples, shared = split_of(planned)
    split = usable(method, examples)
    free = unlimited(method.readout)
    parts = [
        _part(name, split.origin.get(name, ""), getattr(split, name), method, free)
        for name in ("train", "dev", "test")
    ]
    title = " · ".join([*planned.names.values(), f"metric {planned.task.metric}"])
    part = parts[0] if parts[0].examples else parts[2]
    body = [*_rendered(method, part), *_patterns(method, part)]
    doubts = [*shared.warnings, *unseen(planned.task, examples)]
    rows, keeps = part.features[:1], planned.keep.has_weights
    doubts.append(afterwards(method, rows, keeps_weights=keeps))
    accounts = " · ".join(f"{name} {account}" for name, account in planned.task.accounts.items())
    read = [escape(f"read: {accounts}")] if accounts else []  # a task may not count rows
    return Group(title, *read, _counts(parts), *map(escape, doubts), *body)


def _part(
    name: str, origin: str, examples: Sequence[Example], method: Method, free: Readout
) -> PreviewPart:
    """Return a part; `free` reads without a limit on length. Few examples are held at once."""
    lengths, answers, cut = array("i"), array("i"), 0
    head = method.encode(examples[:_SHOWN]) if examples else []
    for some in in_parts(examples):
        features, uncut = method.encode(some), free.encode(some, 10**6)
        lengths.extend(len(row.ids) for f in features for row in f.rows)
        pairs = zip(features, uncut, strict=True)
        cut += sum(f.tokens < all_.tokens or f.facts.get("cut", False) for f, all_ in pairs)
        learned = (len(f.targets) for f in features if f.targets)
        answers.extend(learned if method.readout.writes else ())
    return PreviewPart(name, origin, examples, lengths, cut, head, answers)


def _counts(parts: Sequence[PreviewPart]) -> Table:
    writes = any(part.answers for part in parts)
    shown = "learned tokens: median, most" if writes else "labels"
    table = Table("part", "examples", "tokens: median, most", "cut", shown, "origin")
    for part in parts:
        table.add_row(
            part.name,
            f"{len(part.examples):,}",
            _spread(part.lengths),
            f"{part.cut:,}",
            _spread(part.answers) if writes else _labels(part.examples),
            escape(part.origin),
        )
    return table


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


def _rendered(method: Method, part: PreviewPart) -> list[str]:
    """Return a few examples as the model reads them; read positions are reversed."""
    tokenizer, lines = method.backbone.tokenizer(), []
    for example, features in zip(part.examples[:_SHOWN], part.features, strict=False):
        lines.append(f"\n{escape(example.id)} → {escape(str(example.target))}")
        lines += [_marked(tokenizer, row) for row in features.rows]
    return lines


def _marked(tokenizer: Any, row: TokenRow) -> str:
    """Return the tokens of a row: read positions are reversed, and `<soft>` is a learned vector.

    The tokens of a decoder follow an arrow. If every token is read, none is reversed.
    """
    tokens = [escape(t) for t in tokenizer.convert_ids_to_tokens(row.ids)]
    for place in row.softs:
        tokens[place] = "[bold]<soft>[/bold]"
    if row.decoder is None:
        return _reversed(tokens, row.reads if len(row.reads) < len(tokens) else [])
    decoder = [escape(t) for t in tokenizer.convert_ids_to_tokens(row.decoder)]
    return f"{' '.join(tokens)} → {_reversed(decoder, row.reads)}"


def _reversed(tokens: list[str], reads: Sequence[int]) -> str:
    return " ".join(f"[reverse]{t}[/reverse]" if i in reads else t for i, t in enumerate(tokens))


def _patterns(method: Method, part: PreviewPart) -> list[str]:
    """Return the first example under each pattern of the task."""
    task, backbone = method.task, method.backbone
    if not task.pvps or not part.examples:
        return []
    encoder = Encoder(backbone.tokenizer(), left_to_right=backbone.architecture.left_to_right)
    pvps, fields = read_pvps(task.pvps, worded(task)), part.examples[0].fields
    return [_pattern(method, encoder, pvp, fields) for pvp in pvps.values()]


def _pattern(method: Method, encoder: Encoder, pvp: PVP, fields: Mapping[str, Any]) -> str:
    try:
        row = encoder.encode(pvp.render(fields), method.room(), rule=pvp.shorten)
    except UserError as error:
        return f"\npvp {escape(pvp.name)}: {markup.escape(str(error))}"
    cut = f", {row.cut} tokens cut" if row.cut else ""
    marked = _marked(method.backbone.tokenizer(), TokenRow(row.ids, None, row.masks, row.softs))
    return f"\npvp {escape(pvp.name)}{cut}\n{marked}"
