"""The page and the picture of `benchmarks/peers.py`."""

import statistics
from pathlib import Path

from running import masks

from ptrun.papers.charts import INK, SERIES, legend, panels, styled, svg


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
    head = _HEAD.format(name=name.name, rule=masks(content["pairs"]), **content)
    name.with_suffix(".md").write_text(head + "\n".join(rows) + "\n")
    name.with_suffix(".svg").write_text(_picture(content))


_HEAD = """\
# ptrun against HF Trainer + PEFT

{date}, {rule}, {threads} CPU threads. `python benchmarks/peers.py`: the same weights, rows,
order, batch size, steps, evaluations and precision; pairs run in turns. MiniLM has real weights,
the others are shapes with random weights. A ratio is the median of pairs (lowest to highest);
above 1, ptrun is faster. Tokens are real tokens of the text in training steps. The share is of
the matrix products that this machine reached in the same minute, if every text token passes all
layers forward and backward. The last layer computes requested positions only, so a share can be
too high by that.

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


def _picture(content: dict) -> str:
    """Return bars of both ratios; the line marks equal speed."""
    title = "Speed of ptrun over HF Trainer + PEFT"
    pairs = content["pairs"]
    labels = [f"{pair['shape']} {pair['method']} {pair['job']}" for pair in pairs]
    kinds = {"tokens a second in training": "tokens_per_second", "command to result": "run_s"}
    with styled():
        figure, (axes,) = panels(title, {"": 0.35 * len(pairs)})
        for place, (name, key) in enumerate(kinds.items()):
            lanes = [lane + 0.36 * (place - 0.5) for lane in range(len(pairs))]
            medians = [statistics.median(ratios(pair, key)) for pair in pairs]
            bars = axes.barh(lanes, medians, 0.34, color=SERIES[place], label=name)
            axes.bar_label(bars, fmt="%.2f", padding=3, color=INK)
        axes.axvline(1, color=INK, ls="--", lw=1)
        axes.set_yticks(range(len(pairs)), labels)
        axes.set_ylim(len(pairs) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        legend(figure, *axes.get_legend_handles_labels())
        return svg(figure, title)
