"""The page of `benchmarks/gpu.py`, and the tables of README, CONTRIBUTING and docs made of it.

python benchmarks/gpu_page.py     writes results/gpu.md and the tables between their marks
"""

import argparse
import json
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from pathlib import Path
from typing import Any

from running import masks
from speed import CELLS, MORE

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
FULL, SMALL, DISGUISED = "full", "small", "disguised"
TITLES = {
    FULL: "One GPU, part by part",
    SMALL: "`make gpu` in miniature, on a CPU",
    DISGUISED: "`make gpu` in miniature, on a CUDA device that is not there",
}
WITHOUT_DROPOUT = {"environment", "t5_xxl"}
MISSING = "not measured"


def rule(tree: Path) -> int:
    """Return the number of the rule of a tree's dropout masks, which older trees do not name."""
    file = tree / "ptrun" / "backbone" / "dropout.py"
    number = re.search(r"^RULE = (\d+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    return int(number[1]) if number else 1


# The page: a table of outcomes, then the figures of each part.

_PAGE = """\
# {title}

`make gpu{typed}` measures this: {passed} of {count} parts passed in {seconds:.0f} s. Where a part
has dropout, `masks` is the number of the rule that draws its masks. Today it is {rule}: a part with
another number was measured with an older version.

| part | shows | outcome | seconds | device | recorded |
|---|---|---|---|---|---|
{rows}
"""


def page(rows: list[dict], how: str) -> str:
    """Return the page."""
    cells = ("part", "shows", "outcome", "seconds", "card")
    table = [f"| {' | '.join(str(r[c]) for c in cells)} | {recorded(r)} |" for r in rows]
    head = _PAGE.format(
        title=TITLES[how],
        typed="" if how == FULL else f" ARGS=--{how}",
        passed=sum(row["outcome"] == "passed" for row in rows),
        count=len(rows),
        seconds=sum(row["seconds"] for row in rows),
        rule=rule(ROOT),
        rows="\n".join(table),
    )
    return head + "".join(map(_section, rows))


def recorded(row: dict) -> str:
    """Return the date and the commit of a row, and the rule of the masks if it has dropout."""
    dropout = [] if row["part"] in WITHOUT_DROPOUT else [masks([row])]
    return ", ".join([row["date"], row["commit"], *dropout])


def _section(row: dict) -> str:
    figures = [f"| {name} | {value} |" for name, value in _flat(row["figures"] or {})]
    table = ["| figure | value |", "|---|---|", *figures, ""] if figures else []
    said = ["```", *row["said"], "```", ""] if row["said"] else []
    return "\n".join([f"\n## {row['part']}\n", *table, *said])


def _flat(figures: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield the figures of nested objects and lists, with their names one after another."""
    if isinstance(figures, dict | list):
        inner = figures.items() if isinstance(figures, dict) else enumerate(figures, 1)
        for key, value in inner:
            yield from _flat(value, f"{name} {key}".strip())
    else:
        yield name, f"{figures:.4g}" if isinstance(figures, float) else str(figures)


# The tables: what fits on a GPU and how fast it is, and what ran where.


def fits(pages: Path = RESULTS) -> dict[int, str]:
    """Return by GiB of a card how the 10-billion-parameter backbones of cards.md fit."""
    lines = (pages / "cards.md").read_text(encoding="utf-8").splitlines()
    head, _, *table = [line.strip("| ").split(" | ") for line in lines if line.startswith("|")]
    names, fitting = {row[0] for row in table}, {}
    for place, card in enumerate(head[2:], 2):
        count: Counter[str] = Counter()
        for row in table:
            count["bf16" if row[1] == "fp16" else row[1]] += row[place] != "-"
        shown = [f"{count[k]} of {len(names)} in {k}" for k in count if 0 < count[k] < len(names)]
        shown = shown[:1] + [f"all in {k}" for k in count if count[k] == len(names)]
        fitting[int(card.split()[0])] = ", ".join(shown[:2] if "of" in shown[0] else shown[:1])
    return fitting


def cells_of(rows: Iterable[dict]) -> dict[str, dict]:
    """Return the measured cells by name."""
    parts = [row for row in rows if row["part"] in ("speed", "speed_more")]
    cells = [cell for row in parts for cell in row["figures"].get("cells", ())]
    return {cell["cell"] + _compiled(cell): cell for cell in cells}


def _compiled(products: Container[str]) -> str:
    return ", compiled" if "compiled" in products else ""


def rate(cell: dict | None) -> str:
    """Return tokens/s and how many times the peer's they are."""
    products = [(cell or {}).get(name, {}) for name in ("ptrun", "peer")]
    ours, theirs = (figures.get("tokens_per_second") for figures in products)
    if not ours:
        return MISSING
    return f"{ours:,.0f}" + (f" ({ours / theirs:.1f}x)" if theirs else "")


SHORT = {
    "BERT-base, prompt": "bert_base_uncased 32 x 128 prompt",
    "RoBERTa-large, prefix": "roberta_large 32 x 128 prefix",
    "SmolLM2-135M, LoRA": "smollm2_135m 8 x 512 lora",
}


def short(rows: list[dict]) -> str:
    """Return the table of README: a row for each size of a card."""
    measured, sizes = cells_of(rows), fits()
    device = next((r["figures"] for r in rows if r["part"] == "speed"), {})
    card = max((n for n in sizes if n <= device.get("memory_gib", 0) + 1), default=None)
    lines = [
        f"| your GPU | 11B backbones that fit | {' | '.join(SHORT)} |",
        "|---|---|" + "---|" * len(SHORT),
    ]
    for size, fitting in sizes.items():
        here = size == card
        name = f"{size} GiB" + (f" ({device['device']})" if here else "")
        rates = [rate(measured.get(cell) if here else None) for cell in SHORT.values()]
        lines.append(f"| {name} | {fitting} | {' | '.join(rates)} |")
    return "\n".join(lines)


_COLUMNS: dict[str, Callable[[dict], str]] = {
    "tokens/s": lambda figures: f"{figures['tokens_per_second']:,.0f}",
    "of peak": lambda figures: f"{figures['share_of_peak']:.0%}",
    "ms": lambda figures: f"{figures['ms']:.1f}",
    "host's ms": lambda figures: f"{figures['host_ms']:.1f}",
    "launches + graphs": lambda figures: f"{figures['launches']:.0f} + {figures['graphs']:.0f}",
    "GiB": lambda figures: f"{figures['reserved_mib'] / 2**10:.1f}",
}
_PRODUCTS = {"ptrun": "ptrun", "peer": "Trainer + PEFT", "compiled": "Trainer + PEFT, compiled"}


def speeds(rows: list[dict]) -> str:
    """Return the table of docs: for each cell the products that were measured."""
    measured, empty = cells_of(rows), [""] * (len(_COLUMNS) - 1)
    lines = [f"| a step | product | {' | '.join(_COLUMNS)} |", "|---|---|" + "---|" * len(_COLUMNS)]
    for cell in (*CELLS, *MORE):
        figures = measured.get(cell.name + _compiled(cell.products))
        if figures is None:
            products = ", ".join(_PRODUCTS[name] for name in cell.products)
            lines.append(f"| {' | '.join([cell.name, products, MISSING, *empty])} |")
            continue
        for product in cell.products:
            why = figures[product].get("failed")
            shown = [f"{MISSING}: {why.splitlines()[0].replace('|', ' ')}", *empty] if why else []
            shown = shown or [_shown(show, figures[product]) for show in _COLUMNS.values()]
            lines.append(f"| {' | '.join([cell.name, _PRODUCTS[product], *shown])} |")
    return "\n".join(lines)


def _shown(show: Callable[[dict], str], figures: dict) -> str:
    try:
        return show(figures)
    except KeyError:  # a peak, or the profiler's counts
        return ""


def ran(rows: list[dict]) -> str:
    """Return the table of CONTRIBUTING: what ran where."""
    groups: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        outcome = "" if row["outcome"] == "passed" else f" ({row['outcome']})"
        groups.setdefault((row["card"], recorded(row)), []).append(f"`{row['part']}`{outcome}")
    lines = ["| where | what | recorded |", "|---|---|---|"]
    lines += [f"| {card} | {', '.join(v)} | {when} |" for (card, when), v in groups.items()]
    missing = {"speed", "speed_more", "together", "two_ranks"} - {row["part"] for row in rows}
    if missing:
        lines.append(f"| no GPU yet | {', '.join(f'`{name}`' for name in sorted(missing))} | |")
    lines.append("| the disguised device | `tests/cuda`, `make cuda-grid` | each call |")
    lines.append("| CPUs alone | all other tests and benchmarks | each page has its date |")
    return "\n".join(lines)


TABLES = {
    "README.md": short,
    "docs/howto/gpu.md": lambda rows: short(rows) + "\n\n" + speeds(rows),
    "CONTRIBUTING.md": ran,
}


def filled(name: str, rows: list[dict]) -> str:
    """Return a file of the repository with its table."""
    text = (ROOT / name).read_text(encoding="utf-8")
    marks = re.compile(r"(<!-- gpu\.json -->\n\n).*?(\n\n<!-- end -->)", re.DOTALL)
    table = TABLES[name](rows)
    return marks.sub(lambda found: found[1] + table + found[2], text)


def write_tables() -> None:
    """Write the tables between their marks."""
    rows = json.loads((RESULTS / "gpu.json").read_text(encoding="utf-8"))
    for name in TABLES:
        (ROOT / name).write_text(filled(name, rows), encoding="utf-8")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    (RESULTS / "gpu.md").write_text(page(json.loads((RESULTS / "gpu.json").read_text()), FULL))
    write_tables()
