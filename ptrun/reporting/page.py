"""The page of one run: what it was, scores, curves, labels, worst errors, files, commands."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from html import escape
from statistics import fmean
from typing import Any, NamedTuple

from ptrun.errors import folded, readable
from ptrun.files import read_text
from ptrun.folder import digest
from ptrun.folder.digest import is_number
from ptrun.folder.find import RunFolder
from ptrun.metrics import token_f1
from ptrun.reporting import formats
from ptrun.reporting.table import of_runs

_WORST, _LONGEST = 10, 300  # errors; characters of a text
_BARS, _DOTS = "▁▂▃▄▅▆▇█", 60  # of a curve
_FILES = {
    "result.json": "scores, configuration, versions, data, time and memory",
    "failure.json": "why the run failed",
    "run.yaml": "the configuration",
    "metrics.jsonl": "the training curve",
    "predictions.jsonl": "the prediction for each test example",
    "prompt.safetensors": "what was learned",
    "study.jsonl": "the training examples that the backbone wrote",
    "state.safetensors": "what is needed to go on with the run",
}


class Part(NamedTuple):
    """A part of a page: texts by name, drawings in SVG by the same names, and a table.

    A text that begins with four spaces is a command, which is not divided: it is copied.
    """

    title: str
    texts: Mapping[str, str] = {}
    table: formats.Table | None = None
    drawings: Mapping[str, str] = {}


def parts(run: RunFolder, fields: Mapping[str, Mapping[str, Any]]) -> Iterator[Part]:
    """Yield what the folder of a run tells; `fields` are those of test examples by id."""
    yield _curves(run)
    if run.result.by_label:
        unmarked = replace(run.result, manifest={})
        table = of_runs({run.folder: unmarked}, "", labels=True).printed
        names = ("label", "precision", "recall", "f1", "count", "read as")
        rows = [{name: row[name] for name in names} for row in table.rows]
        words = ("label", "read as")
        yield Part("Labels on test", table=formats.Table(rows, words, words))
    if answers := run.rows("predictions.jsonl"):
        yield _errors(answers, fields)
    files = {}
    for file in sorted(filter(lambda file: file.is_file(), run.folder.iterdir())):
        meaning = next((_FILES[name] for name in _FILES if file.name.endswith(name)), "")
        files[file.name] = f"{file.stat().st_size:,} bytes  {meaning}"
    yield Part("Files", files)


def _curves(run: RunFolder) -> Part:
    """Return the loss, and metric and loss on dev, by step; means where a run has parts."""
    curves: dict[str, dict[int, list[float]]] = {}
    file = run.folder / "metrics.jsonl"
    text = read_text(file, "replace", limit=digest.LONGEST) if file.is_file() else ""
    for line in text.split("\n"):
        with suppress(ValueError):  # damaged, or cut by a process that writes it
            row = digest.row(line)
            before = {"step": "", "dev": "dev "}.get(row.get("event", ""))
            for name in () if before is None else ("loss", run.result.metric):
                if is_number(row.get(name)):
                    curve = curves.setdefault(f"{before}{name}", {})
                    curve.setdefault(row["step"], []).append(row[name])
    texts, drawings = {}, {}
    for name, curve in curves.items():
        means = [(step, fmean(values)) for step, values in sorted(curve.items())]
        (first, begin), (last, end) = means[0], means[-1]
        size = -(-len(means) // _DOTS)
        dots = [means[place : place + size] for place in range(0, len(means), size)]
        values = [fmean(value for _, value in dot) for dot in dots]
        low, height = min(values), max(values) - min(values) or 1
        bars = "".join(_BARS[round((value - low) / height * 7)] for value in values)
        texts[name] = f"{begin:.4g} at step {first:,}, {end:.4g} at step {last:,}\n{bars}"
        ups = (f"{low - value + height:.6g}" for value in values)
        places = " ".join(f"{dot[-1][0]},{up}" for dot, up in zip(dots, ups, strict=True))
        drawings[name] = (
            f'<svg viewBox="{first} 0 {last - first or 1} {height:.6g}" preserveAspectRatio="none">'
            f'<polyline points="{places}"/></svg>'
        )
    return Part("Training", texts, drawings=drawings)


def _errors(answers: Sequence[Mapping[str, Any]], fields: Mapping[str, Mapping[str, Any]]) -> Part:
    """Return the answers farthest from their targets.

    Of equally far ones, one of each confusion comes first, the most frequent before others.
    """
    pairs = [(row["target"], row["prediction"]) for row in answers]
    gaps, counts = [distance(*pair) for pair in pairs], Counter(map(str, pairs))
    seen, order = Counter[str](), list[tuple[float, int, int, int]]()
    for place, (gap, pair) in enumerate(zip(gaps, map(str, pairs), strict=True)):
        order.append((-gap, seen[pair], -counts[pair], place))
        seen[pair] += 1
    texts = {}
    for _, _, _, place in [error for error in sorted(order)[:_WORST] if error[0]]:
        (target, prediction), name = pairs[place], str(answers[place]["id"])
        row = fields.get(name, {})
        if isinstance(target, int) and "options" in row:
            target, prediction = (row["options"][i] for i in (target, prediction))
        told = f"{plain(target, ', ')} → {plain(prediction, ', ')}"
        words = [value for value in row.values() if isinstance(value, list)]
        if isinstance(prediction, list) and words and len(words[0]) == len(target):
            tags = zip(words[0], target, prediction, strict=False)
            told = plain([f"{word} {a} → {b}" for word, a, b in tags if a != b], ", ")
        texts[name] = "\n".join([told, *(f"{key}: {plain(value)}" for key, value in row.items())])
    wrong = f"{len(gaps) - gaps.count(0):,} of {len(gaps):,} are wrong"
    if isinstance(pairs[0][0], float):
        wrong = f"the mean absolute error is {fmean(gaps):.4g}"
    return Part(f"Worst errors, target → prediction; {wrong}", texts)


def distance(target: Any, prediction: Any) -> float:
    """Return how far an answer is from its target; 0 if it is right.

    Of numbers their difference, of tags the words that differ, of several labels or spans those on
    one side, of texts 1 minus the F1 of their words, over the nearest of several targets.
    """
    if isinstance(target, list):
        target = [span.get("text") if isinstance(span, Mapping) else span for span in target]
    if prediction == target or (isinstance(target, list) and prediction in target):
        return 0.0
    if isinstance(target, float) and is_number(prediction):
        return abs(target - float(prediction))
    if isinstance(prediction, str) and isinstance(target, list):
        return 1.0 - max((token_f1(prediction, g) for g in target), default=float(not prediction))
    if isinstance(prediction, list) and len(prediction) == len(target):
        return float(sum(a != b for a, b in zip(target, prediction, strict=True)))
    return float(len({*prediction} ^ {*target})) if isinstance(prediction, list) else 1.0


def plain(value: Any, between: str = " ") -> str:
    """Return a value of an example as a text of at most 300 characters; `-` if it is empty."""
    if isinstance(value, Mapping):  # a span, or a turn
        value = value.get("text", list(value.values()))
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    text = between.join(map(plain, value)) if isinstance(value, list | tuple) else text or "-"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def show(page: Iterable[Part]) -> None:
    """Print a page."""
    for part in (part for part in page if part.texts or part.table):
        print(f"\n{readable(part.title)}")
        for name, text in part.texts.items():
            if text.startswith("    "):
                print(readable(f"  {name}:\n{text}"))
            else:
                print(folded(readable(f"  {name}: {text}").replace("\n", "\n    ")))
        if part.table:
            formats.show(part.table)


def html(title: str, page: Iterable[Part]) -> str:
    """Return a page as HTML that needs no other file; all texts are escaped."""
    lines = [formats.page_head(title), f"<h1>{escape(readable(title))}</h1>"]
    for part in (part for part in page if part.texts or part.table):
        lines.append(f"<section><h2>{escape(readable(part.title))}</h2><dl>")
        for name, text in part.texts.items():
            told, drawing = escape(readable(text.strip())), part.drawings.get(name, "")
            told = told.split("\n")[0] if drawing else told
            lines.append(f"<dt>{escape(readable(name))}<dd>{told}{drawing}")
        lines.append(f"</dl>{formats.html(part.table) if part.table else ''}</section>")
    return "\n".join(lines) + "\n"
