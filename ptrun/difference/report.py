"""The text that `ptrun diff` prints: facts, metrics, predictions, and whether they may differ."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ptrun.difference.answers import FILE, Answers
from ptrun.difference.facts import Fact, differing
from ptrun.difference.verdict import lacks, measured, verdict
from ptrun.run.find import Run

_WIDTH = 72


def difference(a: Run, b: Run) -> str:
    """Return what differs, a line each; the last lines say whether the two should be equal."""
    facts, found = differing(a, b), measured(a, b)
    lines = [f"A  {a.folder}", f"B  {b.folder}", *_facts(facts), *_metrics(a, b), "answers"]
    answered = _answers(found.answers) if found.answers else [f"{lacks(a, b, FILE)}"]
    lines += [f"  {line}" for line in answered]
    return "\n".join([*lines, *verdict(a, b, found, facts)])


def _facts(facts: Sequence[Fact]) -> Iterator[str]:
    for section in dict.fromkeys(fact.section for fact in facts):
        yield section
        own = [fact for fact in facts if fact.section == section]
        width = max(len(fact.key) for fact in own)
        for fact in own:
            yield f"  {fact.key:<{width}}  {_short(fact.old)} → {_short(fact.new)}"


def _metrics(a: Run, b: Run) -> Iterator[str]:
    """Tell every number of either run."""
    numbers = [_numbers(run) for run in (a, b)]
    names = list(dict.fromkeys([*numbers[0], *numbers[1]]))
    if names:
        yield "metrics"
    width = max(map(len, names), default=0)
    for name in names:
        own, other = (found.get(name) for found in numbers)
        yield f"  {name:<{width}}  {_number(own)} → {_number(other)}  {_apart(own, other)}".rstrip()


def _numbers(run: Run) -> dict[str, float]:
    """Return the numbers of a run, the reported split's first and the metric that selects."""
    metrics = run.result.metrics
    parts = sorted(metrics, key=lambda part: part != "test")
    return {
        f"{part} {name}": value
        for part in parts
        for name, value in sorted(metrics[part].items(), key=lambda m: m[0] != run.result.metric)
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


def _answers(found: Answers) -> Iterator[str]:
    shared = f"{found.both:,} examples in both" if found.both else "no example in both"
    alone = [_counted(n, f"only in {run}") for n, run in zip(found.only, "AB", strict=True)]
    yield ", ".join([shared, *filter(None, alone)])
    if found.targets:
        yield f"{found.targets:,} have another target in B"
    if not found.differently:
        yield from ["all answered the same"] if found.both else []
        return
    each, none = ("nearer", "as near in both") if found.numbers else ("right only", "wrong in both")
    told = [f"{found.better[run]:,} {each} in {run}" for run in "AB"]
    told += [_counted(found.better["both"], "right in both, in other words")]
    told += [_counted(found.better["neither"], none)]
    yield f"{found.differently:,} answered differently: {', '.join(filter(None, told))}"
    yield from (f"  {line}" for line in found.shown)


def _counted(count: int, words: str) -> str:
    return f"{count:,} {words}" if count else ""


def _short(value: Any) -> str:
    text = "-" if value is None else str(dict(value) if isinstance(value, Mapping) else value)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."
