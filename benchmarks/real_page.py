"""The page of `claims_real.py`, and the claims in the ledger's page."""

import json
from collections import Counter
from pathlib import Path
from statistics import fmean

from headlines import Headline, judged, line, spread
from real_headlines import CHECKED, CUT, HEADLINES
from real_pictures import differences, scores
from running import masks

_HEAD = """\
# What the papers claim, on real weights and real data

Rows of {days}, {masks}: MiniLM-L6 (22.7M parameters, fp32) and SmolLM2-135M-Instruct (bf16) from
`make weights`, public data, two CPU cores, honest protocol. {done} of {rows} rows are done;
`make claims-real ARGS="--data DIR"` does the others. The learning rate of a method is chosen on
dev among two or three, with one seed. Then five other seeds (three where texts are written) are
scored on test, once each. All are shown. Rows on length and on 2,000 steps have one rate.
A manual prompt trains nothing: its one score stands for all seeds.

{counts}

{summary}

A difference is the second row minus the first, seed by seed, with the 95 % interval of its mean
(Student's t). A claim holds if the interval is above 0, or above -2 points for `close to`. p is
from a two-sided sign-flip test; with five seeds it is at least 0.062.
The interval is over seeds, not over test examples: CB has 56, one is 1.8 points. Seeds share their
training texts, so it leaves out the choice of these too. Undecided: the interval holds 0, or -2 for
`close to`; more seeds or larger test sets are needed. The number of claims is not corrected for: of
{total} claims without any effect, about {chance} would be decided by chance.

The papers' statements are carried over to tasks and models that their tables do not have.

Below: a dot for each seed's difference and a line for the interval. Green holds, red does not hold,
grey is undecided.

![]({name}.svg)

| paper | says | first | second | difference | p | seeds | here |
|---|---|---|---|---|---|---|---|
"""
_ROWS = """
## All rows

![]({name}_rows.svg)

Minutes are of the whole row with its search. Other work shared the cores. The rows on the mean of
tokens, lengths 5 and 50, and depth had one core each, the others two. Tokens/s are those of a run
in training. A row that trains and has none was interrupted and continued: its minutes are those of
the last part.

| task | method | metric | test | seeds | rate | learned | tokens/s | minutes |
|---|---|---|---|---|---|---|---|---|"""
_DPT = (
    "| DPT, Tables 1 and 3 | above fine-tuning; above DPT(sigma) |  |  |  | all tasks: the "
    "ELECTRA is not good enough, see the end of this page |"
)
LEDGER = Path(__file__).parents[1] / "ptrun" / "papers" / "claims.json"
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


def done(stored: list[dict]) -> list[tuple[Headline, dict, dict]]:
    """Return the claims whose rows are done, with both rows."""
    found = by_name(stored)
    pairs = [
        (one, found.get((one.claim, one.first)), found.get((one.claim, one.second)))
        for one in HEADLINES
    ]
    return [(one, first, second) for one, first, second in pairs if first and second]


def write_claims(stored: list[dict]) -> None:
    """Write the claims whose rows are done into the ledger's package."""
    claims = ",\n".join(json.dumps(_claim(*one), ensure_ascii=False) for one in done(stored))
    LEDGER.write_text(f'{{"measured":\n{json.dumps(_MEASURED)},\n"claims": [\n{claims}\n]}}\n')


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
    """Write NAME.md, NAME.svg and NAME_rows.svg."""
    verdicts = [line(headline, by_name(stored)) for headline in HEADLINES]
    counts = Counter(here for _, here in verdicts)
    tested = len(verdicts) - counts["not run"]
    days = sorted({one["date"] for one in stored}) or ["no day"]
    head = _HEAD.format(
        days=days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}",
        masks=masks(stored),
        done=len(stored),
        rows=rows,
        name=name.name,
        total=tested,
        chance=round(0.05 * tested),
        summary=_summary([here for _, here in verdicts]),
        counts=f"{len(verdicts)} claims. {', '.join(f'{w}: {n}' for w, n in counts.items())}.",
    )
    lines = [row for row, here in verdicts if here != "not run"] + [
        CHECKED,
        CUT,
        _ROWS.format(name=name.name),
    ]
    text = head + "\n".join([*lines, *map(_row, stored)]) + "\n"
    name.with_suffix(".md").write_text(text)
    name.with_suffix(".svg").write_text(differences(done(stored)))
    name.with_name(f"{name.name}_rows.svg").write_text(scores(stored))


def _summary(verdicts: list[str]) -> str:
    """Return a table of the statements: the tasks where each holds, is undecided or does not."""
    columns = ("holds", "undecided", "DOES NOT HOLD", "not run")
    tasks: dict[tuple[str, str], dict[str, list[str]]] = {}
    for headline, here in zip(HEADLINES, verdicts, strict=True):
        task, _, says = headline.says.partition(": ")
        own = tasks.setdefault((headline.paper, says), {column: [] for column in columns})
        own[here].append(task)
    lines = [f"| paper | says | {' | '.join(columns)} |", "|---|---|---|---|---|---|"]
    for (paper, says), own in tasks.items():
        cells = ["; ".join(own[column]) for column in columns]
        lines.append(f"| {paper} | {says} | {' | '.join(cells)} |")
    return "\n".join([*lines, _DPT])


def _row(one: dict) -> str:
    seeds = ", ".join(f"{score:.1f}" for score in one["test"])
    cells = [one["claim"], one["row"], one["metric"], spread(one["test"]), seeds]
    speed = one["tokens_per_second"]
    cells += [one["rate"] or "-", f"{one['learned']:,}", f"{speed:,}" if speed else "-"]
    return "| " + " | ".join([*map(str, cells), f"{one['minutes']:.0f}"]) + " |"
