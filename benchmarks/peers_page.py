"""The page and the picture of `benchmarks/peers.py`."""

import statistics
from pathlib import Path

from ptrun.ledger import plots
from ptrun.ledger.plots import Box, Canvas, Words
from ptrun.ledger.plots import Path as Line


def share(pair: dict, index: int) -> float:
    """Return the share of the matrix peak that real tokens reach, in percent.

    Each weight of a linear map costs a token 2 operations forward and 2 backward, and 2 more where
    it learns.
    """
    operations = (6 if pair["method"] == "full" else 4) * pair["weights"]
    rate = pair["ours"][index]["tokens_per_second"] * operations
    return 100 * rate / 1e9 / pair["peak_gflops"][index]


def ratios(pair: dict, key: str) -> list[float]:
    """Return how many times as fast ours is, pair by pair."""
    both = zip(pair["ours"], pair["theirs"], strict=True)
    if key == "tokens_per_second":
        return [a[key] / b[key] for a, b in both]
    return [b[key] / a[key] for a, b in both]


def write_page(name: Path, content: dict) -> None:
    """Write NAME.md and NAME.svg."""
    rows = [_row(pair) for pair in content["pairs"]]
    name.with_suffix(".md").write_text(
        _HEAD.format(name=name.name, **content) + "\n".join(rows) + "\n"
    )
    name.with_suffix(".svg").write_text(plots.svg_file(_picture(content)))


_HEAD = """\
# ptrun against HF Trainer + PEFT

{date}, {threads} CPU threads. `python benchmarks/peers.py`: the same weights, rows, order, batch
size, steps, evaluations and precision; pairs run in turns. MiniLM has real weights, the others are
shapes with random weights. A ratio is the median of pairs (lowest to highest); above 1, ptrun is
faster. Tokens are real tokens of the text in training steps. The share is of the matrix products
that this machine reached in the same minute, if every text token passes all layers forward and
backward. The last layer computes requested positions only, so a share can be too high by that.

![]({name}.svg)

Memory is the peak in MiB; times are in seconds, from the command to the first step and to the
result. Theirs are in brackets.

| model | method | job | tokens/s | ratio | share | memory | first step | result | ratio |
|---|---|---|---|---|---|---|---|---|---|
"""


def _row(pair: dict) -> str:
    def both(key: str, form: str) -> str:
        own, other = (statistics.median(run[key] for run in pair[s]) for s in ("ours", "theirs"))
        return f"{own:{form}} ({other:{form}})"

    speed = statistics.median(run["tokens_per_second"] for run in pair["ours"])
    peak = statistics.median(share(pair, i) for i in range(len(pair["ours"])))
    cells = [pair["shape"], pair["method"], pair["job"], f"{speed:,.0f}"]
    cells += [spread(ratios(pair, "tokens_per_second")), f"{peak:.0f} %", both("peak_mib", ".0f")]
    cells += [both("first_step_s", ".1f"), both("run_s", ".1f"), spread(ratios(pair, "run_s"))]
    return "| " + " | ".join(cells) + " |"


def spread(values: list[float]) -> str:
    """Return the median with the lowest and the highest."""
    return f"**{statistics.median(values):.2f}** ({min(values):.2f} to {max(values):.2f})"


def _picture(content: dict) -> Canvas:
    """Return bars of both ratios; the line marks equal speed."""
    left, unit = 210.0, 120.0
    canvas = Canvas(
        "Speed of ptrun over HF Trainer + PEFT", height=40.0 + 34.0 * len(content["pairs"])
    )
    for index, pair in enumerate(content["pairs"]):
        top = 34.0 + 34.0 * index
        label = f"{pair['shape']} {pair['method']} {pair['job']}"
        canvas.add(Words((left - 8, top + 14), label, anchor="end"))
        for place, (key, role) in enumerate((("tokens_per_second", "s0"), ("run_s", "s1"))):
            value = statistics.median(ratios(pair, key))
            at = (left, top + 12 * place)
            canvas.add(Box(at, (unit * value, 10.0), role))
            canvas.add(Words((left + unit * value + 4, at[1] + 9), f"{value:.2f}", "muted"))
    canvas.add(Line([(left + unit, 26.0), (left + unit, canvas.height)], "ink", dashed=True))
    canvas.add(Words((left, 18), "tokens a second in training", "s0"))
    canvas.add(Words((left + 190, 18), "command to result", "s1"))
    return canvas
