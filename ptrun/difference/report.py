"""The text that `ptrun diff` prints: facts, metrics, predictions, and whether they may differ."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from ptrun.difference.answers import FILE, Predictions
from ptrun.difference.facts import Fact, differing
from ptrun.difference.verdict import lacks, measured, verdict
from ptrun.folder.digest import is_number
from ptrun.folder.find import Run

_WIDTH = 72


def difference(a: Run, b: Run) -> str:
    """Return the differences as lines; the last lines say whether the runs should be equal."""
    facts, found = differing(a, b), measured(a, b)
    lines = [f"A  {a.folder}", f"B  {b.folder}", *_facts(facts), *_metrics(a, b)]
    predictions = found.predictions
    compared = _predictions(predictions) if predictions else [lacks(a, b, FILE)]
    lines += ["predictions", *(f"  {line}" for line in compared)]
    return "\n".join([*lines, *verdict(a, b, found, facts)])


def _facts(facts: Sequence[Fact]) -> Iterator[str]:
    for section, found in groupby(facts, key=lambda fact: fact.section):
        yield section
        yield from _aligned([(fact.key, _short(fact.old), _short(fact.new)) for fact in found])


def _metrics(a: Run, b: Run) -> Iterator[str]:
    own, other = _numbers(a), _numbers(b)
    pairs = {name: (own.get(name), other.get(name)) for name in [*own, *other]}
    if pairs:
        yield "metrics"
    rows = [(n, _number(x), f"{_number(y)}  {_apart(x, y)}") for n, (x, y) in pairs.items()]
    yield from _aligned(rows)


def _aligned(rows: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    width = max((len(key) for key, _, _ in rows), default=0)
    yield from (f"  {key:<{width}}  {old} → {new}".rstrip() for key, old, new in rows)


def _numbers(run: Run) -> dict[str, float]:
    """Return all metrics of a run, the test split and the selecting metric first."""
    metrics = run.result.metrics
    parts = sorted(metrics, key=lambda part: part != "test")
    return {
        f"{part} {name}": value
        for part in parts
        for name, value in sorted(metrics[part].items(), key=lambda m: m[0] != run.result.metric)
        if is_number(value)
    }


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _apart(own: float | None, other: float | None) -> str:
    if own is None or other is None:
        return ""
    if own == other:
        return "equal"
    gain = other - own
    return f"{gain:+.2f}" if abs(gain) >= 0.005 else f"{gain:+.1e}"


def _predictions(found: Predictions) -> Iterator[str]:
    shared = f"{found.both:,} examples in both" if found.both else "no example in both"
    alone = [_counted(n, f"only in {run}") for n, run in zip(found.only, "AB", strict=True)]
    yield ", ".join([shared, *filter(None, alone)])
    if found.targets:
        yield f"{found.targets:,} have a different target in B"
    if not found.differing:
        yield from ["all predictions are equal"] if found.both else []
        return
    each, none = ("nearer", "equally near") if found.numbers else ("correct only", "wrong in both")
    counts = [f"{found.better[run]:,} {each} in {run}" for run in "AB"]
    counts += [_counted(found.better["both"], "correct in both, with different texts")]
    counts += [_counted(found.better["neither"], none)]
    yield f"{found.differing:,} predictions differ: {', '.join(filter(None, counts))}"
    yield from (f"  {line}" for line in found.shown)


def _counted(count: int, words: str) -> str:
    return f"{count:,} {words}" if count else ""


def _short(value: Any) -> str:
    text = "-" if value is None else str(dict(value) if isinstance(value, Mapping) else value)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."
