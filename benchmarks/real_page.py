"""The page and the picture of `claims_real.py`, and the claims in the ledger's page."""

import json
from collections import Counter
from pathlib import Path
from statistics import fmean

from headlines import Headline, judged, line, spread
from real_headlines import CHECKED, CUT, HEADLINES

from ptrun.drawing import svg
from ptrun.drawing.canvas import SERIES, Canvas, Dot, Words
from ptrun.drawing.canvas import Path as Line

_HEAD = """\
# What the papers claim, on real weights and real data

Rows of {days}: MiniLM-L6 (22.7M parameters, fp32) and SmolLM2-135M-Instruct (bf16) from
`make weights`, public data, two CPU cores, honest protocol. {done} of {rows} rows are done;
`make claims-real ARGS="--data DIR"` does the others. The learning rate of a method is chosen on
dev among two (three for fine-tuned SmolLM2), with one seed. Then five other seeds are scored on
test, once each. All are shown.
A manual prompt trains nothing: its one score stands for all seeds.

{counts}

A difference is the second row minus the first, seed by seed, with the 95 % interval of its mean
(Student's t). A claim holds if the interval is above 0, or above -2 points for `close to`. p is
from a two-sided sign-flip test; with five seeds it is at least 0.062.
The interval is over seeds, not over test examples: CB has 56, one is 1.8 points.

![]({name}.svg)

| paper | says | first | second | difference | p | seeds | here |
|---|---|---|---|---|---|---|---|
"""
_ROWS = """
## All rows

Minutes are of the whole row with its search. Other work shared the cores. Tokens/s are those of a
run in training.

| task | method | metric | test | seeds | rate | learned | tokens/s | minutes |
|---|---|---|---|---|---|---|---|---|"""
LEDGER = Path(__file__).parents[1] / "ptrun" / "ledger" / "page" / "claims.json"
_MEASURED = (
    "Runs of MiniLM-L6 (22.7M parameters) and SmolLM2-135M-Instruct on public data: test scores of "
    "five seeds, rates chosen on dev. The difference is the second method minus the first, in "
    "points, with its 95 % interval over seeds; for 'varies less' it is the reduction of a seed's "
    "distance to the median. A claim holds if the interval is above 0, or above -2 for 'close to'. "
    "benchmarks/results/claims_real.md lists all rows."
)


def by_name(stored: list[dict]) -> dict[tuple[str, str], dict]:
    """Return the records by claim and row."""
    return {(one["claim"], one["row"]): one for one in stored}


def write_claims(stored: list[dict]) -> None:
    """Write the claims whose rows are done into the ledger's package."""
    found = by_name(stored)
    pairs = [
        (one, found.get((one.claim, one.first)), found.get((one.claim, one.second)))
        for one in HEADLINES
    ]
    done = [_claim(one, first, second) for one, first, second in pairs if first and second]
    content = {"measured": _MEASURED, "claims": done}
    LEDGER.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def _claim(headline: Headline, first: dict, second: dict) -> dict:
    paper, _, source = headline.paper.partition(", ")
    apart, gap, here = judged(headline, first, second)
    return {
        "paper": paper,
        "source": source,
        "says": headline.says,
        "first": headline.first,
        "second": headline.second,
        "seeds": first["seeds"],
        "scores": [first["test"], second["test"]],
        "gap": [round(number, 2) for number in (fmean(apart), gap.low, gap.high)],
        "verdict": here.lower(),
    }


def write_page(name: Path, stored: list[dict], rows: int) -> None:
    """Write NAME.md and NAME.svg."""
    verdicts = [line(headline, by_name(stored)) for headline in HEADLINES]
    counts = Counter(here for _, here in verdicts)
    days = sorted({one["date"] for one in stored}) or ["no day"]
    head = _HEAD.format(
        days=days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}",
        done=len(stored),
        rows=rows,
        name=name.name,
        counts=f"{len(verdicts)} claims. {', '.join(f'{w}: {n}' for w, n in counts.items())}.",
    )
    lines = [row for row, here in verdicts if here != "not run"] + [CHECKED, CUT, _ROWS]
    text = head + "\n".join([*lines, *map(_row, stored)]) + "\n"
    name.with_suffix(".md").write_text(text)
    name.with_suffix(".svg").write_text(svg.file(_picture(stored)))


def _row(one: dict) -> str:
    seeds = ", ".join(f"{score:.1f}" for score in one["test"])
    cells = [one["claim"], one["row"], one["metric"], spread(one["test"]), seeds]
    cells += [one["rate"] or "-", f"{one['learned']:,}", f"{one['tokens_per_second']:,}"]
    return "| " + " | ".join([*map(str, cells), f"{one['minutes']:.0f}"]) + " |"


def _picture(stored: list[dict]) -> Canvas:
    """Return a strip of dots for each row, a dot for each seed, by task."""
    left, width, step = 190.0, 480.0, 16.0
    tasks = list(dict.fromkeys(one["claim"] for one in stored))
    height = 40.0 + step * len(stored) + 22.0 * len(tasks)
    canvas = Canvas("Test scores on real weights, a dot for each seed", height=height)
    for tick in range(0, 101, 20):
        x = left + width * tick / 100
        canvas.add(Line([(x, 24.0), (x, height)], "grid"))
        canvas.add(Words((x, 18), str(tick), "muted", anchor="middle"))
    y = 30.0
    for task in tasks:
        canvas.add(Words((4, y + 12), task, bold=True))
        y += 22.0
        for index, one in enumerate(own for own in stored if own["claim"] == task):
            canvas.add(Words((left - 8, y + 4), one["row"], anchor="end"))
            for seed, score in zip(one["seeds"], one["test"], strict=True):
                at = (left + width * score / 100, y)
                title = f"{one['row']}, seed {seed}: {score:.2f}"
                canvas.add(Dot(at, 4.0, SERIES[index % len(SERIES)], title=title))
            y += step
    return canvas
