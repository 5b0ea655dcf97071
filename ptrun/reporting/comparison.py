"""The page and the CSV of a comparison: scores with intervals, paired tests, and costs."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Any

from ptrun.errors import readable
from ptrun.folder.find import RunFolder
from ptrun.metrics import holm, student_limit, student_p
from ptrun.reporting import formats
from ptrun.reporting.page import Part

_PREDICTIONS = "predictions.jsonl"
_NONE = formats.NONE
_LEVEL = 0.05

NOTES = (
    "Each method has the same number of trials from its own space (conf/search). Dev chooses the "
    "winner of each, which is trained on fresh seeds and scored once on test.",
    "score: mean on test ± half of its 95 % interval (Student), which covers seeds and, where the "
    "metric is a mean over examples, the test sample. *: other trials than asked for.",
    "added: positions that a request has beside its own text (learned vectors, words of a pattern, "
    "demonstrations), the median over test rows. bytes: of what is stored beside the backbone.",
    "forgetting: rise of the backbone's loss on fixed texts, in nats a token.",
)
_MEASURED = (
    "Of this machine. seconds: of training and evaluation, a run; of runs that share passes its "
    "part by tokens. peak: memory of the process, with the backbone and all runs that share it."
)


def rows(contenders: Sequence[Any], trials: int) -> list[dict[str, Any]]:
    """Return plain values for each contender of `ptrun.sweeps.compare`, by task, best on dev first.

    `trials` is the number that was asked for.
    """
    every = [_row(one, trials) for one in contenders]
    tests: list[tuple[dict[str, Any], float]] = []
    for _, group in groupby(sorted(every, key=_task), key=_task):
        ordered = sorted(group, key=_order)
        best, runs = ordered[0], ordered[0]["runs"]
        for row in ordered[1:]:
            if (test := paired(row["runs"], runs)) is not None:
                row["against"], row["difference"], row["p"] = best["method"], *test
                tests.append((row, test[1]))
    for (row, _), p in zip(tests, holm([p for _, p in tests]), strict=True):
        row["p_holm"], row["comparisons"] = p, len(tests)
    return sorted(every, key=lambda row: (_task(row), _order(row)))


def _task(row: Mapping[str, Any]) -> str:
    return str(row["where"])


def _order(row: Mapping[str, Any]) -> tuple[float, str]:
    return -(row["dev"] if row["dev"] is not None else -math.inf), row["method"]


def _row(one: Any, trials: int) -> dict[str, Any]:
    runs = one.runs
    first = runs[0].result if runs else None
    costs = [run.facts("cost") for run in runs]
    losses = [cost["forgetting"] for cost in costs if "forgetting" in cost]
    names = first.names if first else {}
    low, score = interval(runs)
    return {
        "where": one.where,
        "task": names.get("task", ""),
        "backbone": names.get("backbone", ""),
        "method": one.method,
        "metric": first.metric if first else "",
        "score": score,
        "half_interval": low,
        "scores": _scores(runs, "test"),
        "dev": statistics.fmean(_scores(runs, "dev")) if runs else None,
        "dev_in_search": one.dev,
        "seeds": [run.result.seed for run in runs],
        "trials": len(one.points),
        "trials_asked": trials,
        "failed": len(one.failed),
        "why": next(iter(one.failed), "").split("\n")[0],
        "chosen": one.chosen,
        "learned": first.learned_parameters["total"] if first else None,
        "bytes": costs[0].get("bytes") if costs else None,
        "tokens_added": costs[0].get("tokens_added") if costs else None,
        "forgetting": statistics.fmean(x["loss"] - x["base"] for x in losses) if losses else None,
        "seconds": _mean(_facts(runs, "seconds")),
        "peak_memory_mib": max(peaks) if (peaks := _facts(runs, "peak_memory_mib")) else None,
        "against": None, "difference": None, "p": None, "p_holm": None, "comparisons": None,
        "runs": runs,
    }  # fmt: skip


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _facts(runs: Sequence[RunFolder], key: str) -> list[float]:
    return [run.result.manifest[key] for run in runs]


def _scores(runs: Sequence[RunFolder], split: str) -> list[float]:
    return [run.result.metrics[split][run.result.metric] for run in runs]


# Intervals: the variance of a mean over seeds and examples.


def _correct(run: RunFolder) -> list[float] | None:
    """Return 0 or 100 for each test example; None if the metric is not their mean."""
    answers = run.rows(_PREDICTIONS) or []
    values = [100.0 * (row["prediction"] == row["target"]) for row in answers]
    score = run.result.metrics["test"][run.result.metric]
    return values if values and abs(statistics.fmean(values) - score) < 1e-6 else None


def _error(
    by_seed: Sequence[Sequence[float] | None], scores: Sequence[float]
) -> tuple[float, float] | None:
    """Return the standard error of the mean of scores, and its degrees of freedom (Satterthwaite).

    None for fewer than two seeds.
    """
    samples, complete = [scores], [values for values in by_seed if values is not None]
    if len(complete) == len(by_seed):
        samples.append([statistics.fmean(values) for values in zip(*complete, strict=True)])
    if len(scores) < 2 or len(samples[-1]) < 2:
        return None
    parts = [(statistics.variance(sample) / len(sample), len(sample) - 1) for sample in samples]
    variance, spread = sum(part for part, _ in parts), sum(part**2 / n for part, n in parts)
    return math.sqrt(variance), variance**2 / spread if spread else 1.0


def interval(runs: Sequence[RunFolder]) -> tuple[float | None, float | None]:
    """Return half of the 95 % interval of the mean test score, and the mean."""
    scores = _scores(runs, "test")
    if (spread := _error([_correct(run) for run in runs], scores)) is None:
        return None, _mean(scores)
    return student_limit(spread[1]) * spread[0], statistics.fmean(scores)


def paired(runs: Sequence[RunFolder], others: Sequence[RunFolder]) -> tuple[float, float] | None:
    """Return the mean difference of two methods on the same seeds and examples, and its p.

    None if their seeds differ, or are fewer than two.
    """
    if len(runs) < 2 or [r.result.seed for r in runs] != [r.result.seed for r in others]:
        return None
    pairs = list(zip(_scores(runs, "test"), _scores(others, "test"), strict=True))
    gaps, by_seed = [a - b for a, b in pairs], list[Sequence[float] | None]()
    for run, other in zip(runs, others, strict=True):
        a, b = _correct(run), _correct(other)
        same = a is not None and b is not None and len(a) == len(b)
        by_seed.append([x - y for x, y in zip(a, b, strict=True)] if same and a and b else None)
    spread, gap = _error(by_seed, gaps), statistics.fmean(gaps)
    if not spread or not spread[0]:
        return gap, 1.0 if gap == 0 else 0.0
    return gap, student_p(gap / spread[0], spread[1])


# The page.


def parts(every: Sequence[Mapping[str, Any]], title: str) -> Iterator[Part]:
    """Yield the parts of the page; figures of the machine stand in the last one alone."""
    yield Part(title, {"how": "\n".join(NOTES)})
    for where, group in groupby(every, key=_task):
        members = list(group)
        named = next((row for row in members if row["task"]), None)
        title = f"{named['task']} · {named['backbone']}" if named else where
        points, name = [row for row in members if row["score"] is not None], "score by size"
        drawing = {name: _picture(points)} if len(points) > 1 else {}
        texts = dict.fromkeys(drawing, "score upwards, learned parameters to the right")
        yield Part(title, texts, _table(members, title), drawing)
    if len(totals := list(_totals(every))) > 1:
        yield Part("All tasks", table=formats.Table(totals, ("method",), ("method",)))
    measured = [
        {
            "task": row["task"] or row["where"],
            "method": row["method"],
            "seconds": _text(row["seconds"], "{:.1f}"),
            "peak MiB": _text(row["peak_memory_mib"], "{:.0f}"),
        }
        for row in every
    ]
    names = ("task", "method")
    yield Part("Time and memory", {"measured": _MEASURED}, formats.Table(measured, names, names))


def _totals(every: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, str]]:
    """Yield the mean score and rank of each method that has a score on all of several tasks."""
    tasks, scores, ranks = 0, dict[str, list[float]](), dict[str, list[int]]()
    for _, group in groupby(every, key=_task):
        tasks += 1
        scored = [row for row in group if row["score"] is not None]
        for place, row in enumerate(sorted(scored, key=lambda row: -row["score"]), 1):
            scores.setdefault(row["method"], []).append(row["score"])
            ranks.setdefault(row["method"], []).append(place)
    means = {name: statistics.fmean(values) for name, values in scores.items()}
    for name in sorted(means, key=lambda name: -means[name]):
        if len(scores[name]) == tasks > 1:
            rank = statistics.fmean(ranks[name])
            yield {"method": name, "mean": f"{means[name]:.2f}", "mean rank": f"{rank:.2f}"}


def _text(value: Any, form: str) -> str:
    return _NONE if value is None else form.format(value).replace("-", formats.MINUS)


def _table(members: Sequence[Mapping[str, Any]], title: str) -> formats.Table:
    lines, notes = [], []
    metric = members[0]["metric"] or "score"  # rows without a run come last
    front = {row["method"] for row in pareto(members)}
    for row in members:
        other = row["trials"] != row["trials_asked"]
        half = "" if row["half_interval"] is None else f" ± {row['half_interval']:.2f}"
        p = row["p_holm"]
        lines.append(
            {
                "method": row["method"],
                metric: _text(row["score"], "{:.2f}") + half + " *" * other,
                "dev": _text(row["dev"], "{:.2f}"),
                "to the best": _text(row["difference"], "{:+.2f}"),
                "p": _text(p, "{:.3f}") + " " * (p is not None) + _word(p),
                "trials": f"{row['trials']}",
                "learned": _text(row["learned"], "{:,}"),
                "bytes": _text(row["bytes"], "{:,}"),
                "added": _text(row["tokens_added"], "{:g}"),
                "forgetting": _text(row["forgetting"], "{:.3f}"),
                "front": "yes" if row["method"] in front else "",
                "chosen": row["chosen"],
            }
        )
        if row["failed"]:
            notes.append(f"{row['method']}: {row['failed']} runs have no result: {row['why']}")
    tests = next((row["comparisons"] for row in members if row["comparisons"]), 0)
    best = members[0]["method"]
    notes.append(
        f"p: paired test against {best}, the best on dev, over the same seeds and test examples; "
        f"Holm's correction for all {tests} comparisons of this page. front: no other method has "
        "a higher score with fewer learned parameters."
    )
    return formats.Table(lines, ("method", "front", "chosen"), ("method",), title, notes)


def _word(p: float | None) -> str:
    return "" if p is None else "decided" if p < _LEVEL else "undecided"


def pareto(members: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows to which none is equal or better in score and learned parameters."""
    scored = [row for row in members if row["score"] is not None]

    def beaten(row: Mapping[str, Any]) -> bool:
        pair = (row["score"], -row["learned"])
        others = ((other["score"], -other["learned"]) for other in scored)
        return any(o[0] >= pair[0] and o[1] >= pair[1] and o != pair for o in others)

    return [row for row in scored if not beaten(row)]


_WIDTH, _HEIGHT, _EDGE = 640, 300, 40


def _picture(points: Sequence[Mapping[str, Any]]) -> str:
    """Return a drawing in SVG: score upwards, learned parameters to the right, by powers of 10."""
    places = [math.log10(1 + row["learned"]) for row in points]
    scores = [row["score"] for row in points]
    low, height = min(scores), max(scores) - min(scores) or 1.0
    widest, front, marks = max(places) or 1.0, [row["method"] for row in pareto(points)], []
    for row, place in zip(points, places, strict=True):
        x = _EDGE + place / widest * (_WIDTH - 5 * _EDGE)
        y = _HEIGHT - _EDGE - (row["score"] - low) / height * (_HEIGHT - 2 * _EDGE)
        fill = "#3b7dd8" if row["method"] in front else "#888"
        marks.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{fill}"/>')
        marks.append(
            f'<text x="{x + 7:.1f}" y="{y + 4:.1f}" font-size="11" fill="currentColor">'
            f"{escape(readable(row['method']))} {row['score']:.1f}</text>"
        )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" style="height:auto;max-width:50rem">'
        f"{''.join(marks)}</svg>"
    )


def csv(every: Sequence[Mapping[str, Any]]) -> str:
    """Return all values as CSV."""
    return formats.to_csv([{k: v for k, v in row.items() if k != "runs"} for row in every])
