"""The page of `claims_real.py`, and the claims in the ledger's page."""

import json
from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from math import sqrt
from operator import itemgetter
from pathlib import Path
from statistics import fmean, stdev

from headlines import NEAR, Headline, judged, spread
from real_headlines import CHECKS, CUT, EMPTY_RTE, FORMULAS, HEADLINES, is_earlier
from real_pictures import differences, scores
from real_rows import ROWS
from running import masks

from ptrun.metrics import holm, student_limit, student_p
from ptrun.papers.shown import PAPERS

MOST, MANY = 200, 10  # seeds that are counted, and that are many

_HEAD = """\
# What the papers claim, on real weights and real data

Rows of {days}, {masks}: {models},
from `make weights`, the first in fp32 and the others in bf16, public data, two CPU cores, honest
protocol. {done} of {rows} rows are done; `make claims-real ARGS="--data DIR"` does the others. The
command of each row is at the end. The learning rate of a method is chosen on dev among its
candidates, two to five, with one seed. Then other seeds are scored on test, once each: ten where
five left a claim undecided, five in the families of larger models and where five decided. All are
shown. Rows on length and on 2,000 steps have one rate. A manual prompt trains nothing: its one
score stands for all seeds.

{counts}
{earlier}

{summary}

The same by model, a claim for each task:

{sizes}

A difference is the second row minus the first, seed by seed, with the 95 % interval of its mean
(Student's t). A claim holds if the interval is above 0, or above -2 points for `close to`. p is
that of the same test, and after Holm's correction for the {total} claims that were run.
The interval is over seeds, not over test examples: CB has 56, one is 1.8 points. Seeds share their
training texts, so it leaves out the choice of these too. Undecided: the interval holds 0, or -2 for
`close to`; about so many seeds would decide it if the mean and the spread stayed.

Of {total} claims that were run {decided} are decided, {holm} after Holm's correction; of as many
without any effect about {chance} would be decided by chance. {few} of the others would need more
than {many} seeds.

On an article the score is -100 times the divergence from the model with the document in view (kl,
in nats a token), and that chooses the rate on dev. LoRA and a random start had the highest of their
three rates there, so they were given higher ones. Two rows were so scored on test before at another
rate, 1e-2: the cartridge -5.66 and the random start -22.91.

DPT needs an ELECTRA. No package of the registry has one, so `python -m workshop.pretrain` continued
encoders as detectors of replaced tokens. The bar was an area under the ROC curve of 0.93 on
held-out text. `minilm_electra` of 6 layers came to 0.927 in 177 minutes of two cores: 1,500 steps,
then with `initial=` 3,000 and 1,200, at the rates 3e-4, 3e-4 and 1.5e-4 (electra.csv).
`marco_electra` of 12 layers has 0.939, so DPT's rows are of it: 2,400 steps of 4,096 tokens in
278 minutes of one or two cores (marco_electra.csv). Until step 1,650 its rate was that of
`steps=6000`. After 500 steps it had 0.908 in training, `minilm_electra` 0.878.

The papers' statements are carried over to tasks and models that their tables do not have.

Below: a dot for each seed's difference and a line for the interval. Green holds, red does not hold,
grey is undecided.

![]({name}.svg)

| paper | says | first | second | difference | p | after Holm | seeds | at five | here |
|---|---|---|---|---|---|---|---|---|---|
"""
_ROWS = """
## All rows

![]({name}_rows.svg)

Minutes are of the whole row with its search. Other work shared the cores. Rows before 2026-11-28
had two cores, those on the mean of tokens, lengths 5 and 50, and depth one; later rows one. Tok/s
are tokens a second of a run in training. A row that was interrupted and continued has the minutes
of its last part, and some have no tok/s. Shared: runs that shared the passes of the frozen model,
"-" where it was not stored.

| task | method | metric | test | seeds | rate | rates tried | learned | tok/s | shared | minutes |
|---|---|---|---|---|---|---|---|---|---|---|"""
_TYPED = """
## The commands of these rows

In their order, and last the seeds of rows whose trials stand apart. DIR is the folder of the data
sets; `make claims-real` cuts the files of some rows.

```text"""
LEDGER = Path(__file__).parents[1] / "ptrun" / "papers" / "claims.json"
_MEASURED = (
    "Runs of small pretrained models on public data: test scores of five or ten seeds, rates "
    "chosen on dev. The difference is the second method minus the first, in points, with its 95 % "
    "interval over seeds; for 'varies less' it is the reduction of a seed's distance to the "
    "median. A claim holds if the interval is above 0, or above -2 for 'close to'. "
    "benchmarks/results/claims_real.md lists all rows and models."
)


def done(stored: list[dict]) -> list[tuple[Headline, dict, dict]]:
    """Return the claims whose rows are done, with both rows."""
    rows = {(one["claim"], one["row"]): one for one in stored}
    pairs = [
        (one, rows.get((one.claim, one.first)), rows.get((one.claim, one.second)))
        for one in HEADLINES
    ]
    return [(one, first, second) for one, first, second in pairs if first and second]


@dataclass(frozen=True)
class Judged:
    """A claim whose rows are done: its line but for Holm's correction, and what it says.

    Args:
        needs: the seeds that would decide it, None if it is decided.
    """

    cells: tuple[str, ...]
    p: float
    seeds: int
    five: str
    here: str
    needs: int | None


def judged_claim(headline: Headline, first: dict, second: dict) -> Judged:
    """Return what the rows of a claim say, with all seeds and with the first five."""
    apart, gap, here = judged(headline, first, second)
    five = judged(headline, first, second, 5)[2]
    shift = NEAR if headline.kind == "close" else 0.0
    mean, error = fmean(apart) + shift, stdev(apart) / sqrt(len(apart))
    p = student_p(mean / error, len(apart) - 1) if error else float(mean == 0)
    scores = [f"{row['row']} {spread(row['test'])}" for row in (first, second)]
    between = f"{fmean(apart):+.2f} ({gap.low:+.2f} to {gap.high:+.2f})"
    needs = needed(mean, stdev(apart)) if here == "undecided" else None
    cells = (headline.paper, headline.says, *scores, between)
    return Judged(cells, p, len(apart), five, here, needs)


def needed(mean: float, deviation: float) -> int:
    """Return the number of seeds whose interval would not hold 0; at most `MOST`, or one more."""
    if mean == 0:
        return MOST + 1
    counts = range(2, MOST + 1)
    wide = (student_limit(n - 1) * deviation / sqrt(n) >= abs(mean) for n in counts)
    return next((n for n, held in zip(counts, wide, strict=True) if not held), MOST + 1)


def lines_of(claims: list[Judged]) -> list[str]:
    """Return the rows of the table of claims, with p after Holm's correction."""
    found = []
    for one, corrected in zip(claims, holm([one.p for one in claims]), strict=True):
        more = f" (about {one.needs} seeds)" if one.needs else ""
        if (one.needs or 0) > MOST:
            more = f" (more than {MOST} seeds)"
        chances = [f"{p:.3f}" if p >= 0.001 else "< 0.001" for p in (one.p, corrected)]
        numbers = [*chances, str(one.seeds), one.five, one.here + more]
        found.append(f"| {' | '.join([*one.cells, *numbers])} |")
    return found


def write_claims(stored: list[dict]) -> None:
    """Write the claims whose rows are done into the ledger's package."""
    run = [(headline, _claim(headline, *rows)) for headline, *rows in done(stored)]
    of_papers = [one for one in run if one[1]["paper"] in PAPERS.values()]
    left = [headline for headline, one in of_papers if one["verdict"] == "does not hold"]
    checked = [
        {"papers": sorted({_paper(one) for one in claims}), "text": _line(claims, text)}
        for claims, text in explained(left)
    ]
    papers = groupby((one for _, one in of_papers), itemgetter("paper"))
    lines = [
        f'{{"measured": {json.dumps(_MEASURED)},',
        f'"checked": {json.dumps(checked)},',
        '"claims": [',
        ",\n".join(", ".join(map(json.dumps, claims)) for _, claims in papers),
        "]}\n",
    ]
    LEDGER.write_text("\n".join(lines))


def _claim(headline: Headline, first: dict, second: dict) -> dict:
    source = headline.paper.partition(", ")[2]
    apart, gap, here = judged(headline, first, second)
    shared = [seed for seed in first["seeds"] if seed in second["seeds"]]
    by_seed = [dict(zip(row["seeds"], row["test"], strict=True)) for row in (first, second)]
    return {
        "paper": _paper(headline),
        "source": source,
        "says": headline.says,
        "first": headline.first,
        "second": headline.second,
        "seeds": shared,
        "scores": [[row[seed] for seed in shared] for row in by_seed],
        "gap": [round(number, 2) for number in (fmean(apart), gap.low, gap.high)],
        "verdict": here.lower(),
    }


def write_page(name: Path, stored: list[dict], rows: int, typed: list[str]) -> None:
    """Write NAME.md, NAME.svg and NAME_rows.svg; `typed` are the commands of the stored rows."""
    both = {headline: rows for headline, *rows in done(stored)}
    claims = [judged_claim(headline, *rows) for headline, rows in both.items()]
    heres = iter(one.here for one in claims)
    verdicts = [next(heres) if headline in both else "not run" for headline in HEADLINES]
    counts = Counter(verdicts)
    needs = [one.needs for one in claims if one.needs]
    days = sorted({one["date"] for one in stored}) or ["no day"]
    left = [one for one, here in zip(HEADLINES, verdicts, strict=True) if here == "DOES NOT HOLD"]
    head = _HEAD.format(
        days=days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}",
        masks=masks(stored),
        models="; ".join(
            f"{name} ({size})"
            for name, size in _SIZES.items()
            if any(f"backbone={name}" in one["options"] for one in stored)
        ),
        done=len(stored),
        rows=rows,
        name=name.name,
        total=len(claims),
        chance=round(0.05 * len(claims)),
        decided=len(claims) - len(needs),
        holm=sum(p < 0.05 for p in holm([one.p for one in claims])),
        few=sum(n > MANY for n in needs),
        many=MANY,
        summary=_summary(verdicts),
        sizes=by_size(verdicts),
        earlier=_earlier(dict(zip(both, claims, strict=True))),
        counts=f"{len(verdicts)} claims. {', '.join(f'{w}: {n}' for w, n in counts.items())}.",
    )
    checks = [f"\n## What was checked where a claim does not hold\n\n{FORMULAS} {EMPTY_RTE}\n"]
    checks += [f"- {_line(*one)}" for one in explained(left)]
    lines = [*lines_of(claims), *checks, CUT, _ROWS.format(name=name.name)]
    text = head + "\n".join([*lines, *map(_row, stored), _TYPED, *typed, "```"]) + "\n"
    name.with_suffix(".md").write_text(text)
    name.with_suffix(".svg").write_text(differences(done(stored)))
    name.with_name(f"{name.name}_rows.svg").write_text(scores(stored))


def _earlier(judged: dict[Headline, Judged]) -> str:
    """Return how many claims are decided, or need many seeds: the earlier ones and the others."""
    first = [one for one in HEADLINES if is_earlier(one)]
    texts = []
    for claims in (first, [one for one in HEADLINES if one not in first]):
        needs = [judged[one].needs or 0 for one in claims if one in judged]
        decided, many = needs.count(0), sum(n > MANY for n in needs)
        share = round(100 * (decided + many) / len(claims))
        texts.append(f"{decided} are decided and {many} need more than {MANY} seeds ({share} %)")
    return (
        f"Of the {len(first)} that were written before 2026-11-28, {texts[0]}; of the "
        f"{len(HEADLINES) - len(first)} others, written before their rows were run but for the two "
        f"on LoRA and sums, {texts[1]}."
    )


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
    return "\n".join(lines)


def explained(left: list[Headline]) -> list[tuple[list[Headline], str]]:
    """Return what was checked about claims that do not hold, with these; last, those without."""
    checks = [([one for one in left if check.is_about(one)], check.text) for check in CHECKS]
    without = [one for one in left if not any(check.is_about(one) for check in CHECKS)]
    return [(claims, text) for claims, text in (*checks, (without, "Not explained.")) if claims]


def _line(claims: list[Headline], text: str) -> str:
    return f"{'; '.join(f'{_paper(one)}, {one.says}' for one in claims)}. {text}"


def _paper(headline: Headline) -> str:
    return headline.paper.partition(", ")[0]


_SIZES = {
    "minilm_l6": "6 layers, 23M",
    "ms_marco_minilm_l12": "12 layers, 33M",
    "electra_base": "ELECTRA, 12 layers, 33M",
    "distilbert_cased_quire": "cased, 6 layers, 65M",
    "multilingual_e5_small": "Chinese, 12 layers, 118M",
    "smollm2_135m": "SmolLM2, 30 layers, 135M",
}


def by_size(verdicts: list[str]) -> str:
    """Return a table of the statements: how many claims hold, of those that ran, on each model."""
    models = {row.claim: row.options for row in ROWS}
    counted: dict[tuple[str, str], dict[str, Counter]] = {}
    for headline, here in zip(HEADLINES, verdicts, strict=True):
        text = " ".join(models[headline.claim])
        size = next(size for name, size in _SIZES.items() if f"backbone={name}" in text)
        says = headline.says.partition(": ")[2]
        counted.setdefault((headline.paper, says), {}).setdefault(size, Counter())[here] += 1
    lines = [f"| paper | says | {' | '.join(_SIZES.values())} |", "|---|---" * 4 + "|"]
    for (paper, says), sizes in counted.items():
        cells = [_counts(sizes.get(size, Counter())) for size in _SIZES.values()]
        lines.append(f"| {paper} | {says} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _counts(verdicts: Counter) -> str:
    """Return how many claims hold, do not hold, and are undecided, of those that ran."""
    words = {"holds": "hold", "DOES NOT HOLD": "do not", "undecided": "undecided"}
    return ", ".join(f"{verdicts[here]} {word}" for here, word in words.items() if verdicts[here])


def _row(one: dict) -> str:
    seeds = ", ".join(f"{score:.1f}" for score in one["test"])
    cells = [one["claim"], one["row"], one["metric"], spread(one["test"]), seeds]
    speed = one["tokens_per_second"]
    candidates = len(one["rates"].split(",")) if one["rates"] else 0
    cells += [one["rate"] or "-", candidates, f"{one['learned']:,}", f"{speed:,}" if speed else "-"]
    cells.append(one.get("shared", "-"))
    return "| " + " | ".join([*map(str, cells), f"{one['minutes']:.0f}"]) + " |"
