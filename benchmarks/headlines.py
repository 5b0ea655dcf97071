"""Test each paper's headline claim in miniature, with five seeds, offline, and write a page.

    make claims                                     # or: python benchmarks/headlines.py
    python benchmarks/headlines.py --estimate       # seconds, from stored runs; runs nothing
    python benchmarks/headlines.py --page           # the page from stored results; runs nothing
    python benchmarks/headlines.py --only facts --seeds 1,2 --outputs DIR --out DIR

Every claim is rows of `claims.py`, which `learning.py` runs. Finished runs in --outputs are not
repeated; an interrupted one resumes. Writes results/learning.{md,json} and results/claims.md, whose
date is that of the newest result.
"""

import argparse
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean, median, stdev

import learning
from claims import CLAIMS
from running import RESULTS, arguments, kept, masks

from ptrun.papers.ours import Interval, interval, verdict

SEEDS, NEAR = "1,2,3,4,5", 2.0
START_UP = 10  # seconds per row: imports, weights, the sweep
FIRST = {  # seconds of prerequisite runs, which learning.json does not have
    "32 shots, sentiment": 17 + 14 + 182,  # labeller, prompt, prompt of the unified form (shared)
}


@dataclass(frozen=True)
class Headline:
    """A paper's statement about two rows of a claim.

    `kind` is `above` (the second row beats the first), `close` (it is at most two points behind)
    or `steady` (its scores are closer to their median). `done` reports what was tried if the
    statement does not hold.
    """

    paper: str
    says: str
    claim: str
    first: str
    second: str
    kind: str = "above"
    done: str = ""


PTV2, PTUNING, DPT = "P-tuning v2, Tables 2 and 3", "P-tuning, Table 2", "DPT, Table 1"
PPT, DEEP = "PPT, Table 4", "P-tuning v2, Figure 3"
NER = (
    "Checked: in the tests the deep prompt equals PEFT's prefix tuning to 1e-5. `lora` reaches "
    "97.26 ± 0.38 on the same task and model with fewer parameters (CHANGELOG), so the model "
    "can be tuned. Tried: CoNLL-2003 on a 5 M encoder. There deep and input prompts are level, "
    "and both are far behind fine-tuning. The reason is not known."
)
OPINIONS = (
    "DPT has the higher mean and little spread. Fine-tuning (or the other direction) falls to "
    "chance on some of five seeds, which makes the interval wide. More seeds were not run."
)
TOPICS = (
    "DPT needs an ELECTRA head that separates fitting class words from others. `pocket_electra` "
    "was trained again with a generator that sees half the words (`unseen=0.5`). On opinions "
    "DPT rose from chance to above fine-tuning. On a larger ELECTRA, the same change raised "
    "TREC from 70 to 78 (two seeds). Among 14 topics DPT needs more texts; see the curve below."
)
SHOTS = (
    "A fine-tuned classifier labels the lines. Prompts are pre-trained for 200 steps by PPT's "
    "recipe; the unified form has 600 steps and a lower rate, because at the paper's rate the "
    "prompt stops answering with a letter."
)
LEFT_OUT = (
    "PPT at 32 shots on pairs. `pocket_t5`, tuned whole on all 3,000 pairs, reaches 55.2 of 100. "
    "A baseline of words and their overlap reaches 55.5, chance is 33.3. A prompt with 32 pairs "
    "cannot show what the model cannot learn with all of them, so pairs do not test PPT. PPT is "
    "tested on opinions alone."
)
MEANING = (
    "DPT comes close to fine-tuning as texts are added, and is never above it. With few texts the "
    "loss stays at its base rate, one right class of 14, and then fits the texts by heart. DPT "
    "written anew in plain transformers gave the same scores at 21 texts (FT 89.0, DPT 48.7), so "
    "this is no fault of the implementation. The paper says that a head from pre-training needs "
    "fewer texts than a new one. On an ELECTRA of 1.2 M parameters it needs more: its head has not "
    "learned which of 14 topics fits a text."
)
CURVE = {  # texts a class and epochs, by claim
    "topics, 10 texts a class": (10, 10),
    "10 %, topics": (21, 10),
    "topics, 53 texts a class": (53, 5),
    "topics, 107 texts a class": (107, 3),
    "topics, 214 texts a class": (214, 2),
}
IDPG = (
    "Also tried on Subj with 1,000 texts and a larger encoder (learning.md): no clear "
    "difference. Here the plain prompt is within 2 points of fine-tuning (92.54 ± 0.31, "
    "CHANGELOG)."
)
DEPTH = (
    "NER: both halves of this model of four layers are level. Opinions: the upper half is 17 "
    "points better in the mean, and the lower half is unstable: the verdict rests on few seeds. "
    "More seeds were not run."
)
HEADLINES = (
    Headline(PTV2, "above prompt tuning on tagging", "NER", "PT", "P-tuning v2", done=NER),
    Headline(PTV2, "close to fine-tuning on tagging", "NER", "FT", "P-tuning v2", "close", NER),
    Headline(PTUNING, "above manual prompts on facts", "facts", "manual", "P-tuning"),
    Headline(PTUNING, "above manual prompts, GPT-2", "facts, GPT-2", "manual", "P-tuning"),
    Headline(
        DPT, "above fine-tuning at 10 %, opinions", "10 %, sentiment", "FT", "DPT", done=OPINIONS
    ),
    Headline(DPT, "above fine-tuning at 10 %, topics", "10 %, topics", "FT", "DPT", done=TOPICS),
    Headline(
        "DPT, Table 3",
        "1 - sigma above sigma, opinions",
        "10 %, sentiment",
        "DPT(sigma)",
        "DPT",
        done=OPINIONS,
    ),
    Headline("DPT, Table 3", "1 - sigma above sigma, topics", "10 %, topics", "DPT(sigma)", "DPT"),
    Headline(
        "IDPG, Table 1",
        "above prompt tuning, opinions",
        "instances, sentiment",
        "PT",
        "M-IDPG",
        done=IDPG,
    ),
    Headline(PPT, "above PT at 32 shots, opinions", "32 shots, sentiment", "PT", "PPT", done=SHOTS),
    Headline(PPT, "less variance, opinions", "32 shots, sentiment", "PT", "PPT", "steady"),
    Headline(
        DEEP, "top layers above bottom, NER", "depth, NER", "layers 1-2", "layers 3-4", done=DEPTH
    ),
    Headline(
        DEEP,
        "top layers above bottom, opinions",
        "depth, sentiment",
        "layers 1-2",
        "layers 3-4",
        done=DEPTH,
    ),
)
WANTED = dict.fromkeys(headline.claim for headline in HEADLINES)


def judged(
    headline: Headline, first: dict, second: dict, most: int | None = None
) -> tuple[list[float], Interval | None, str]:
    """Return the differences seed by seed, the interval of their mean, and the verdict.

    `most` limits the number of seeds.
    """
    pairs = [dict(zip(row["seeds"], row["test"], strict=True)) for row in (first, second)]
    seeds = [seed for seed in pairs[0] if seed in pairs[1]][:most]
    own, other = ([scores[seed] for seed in seeds] for scores in pairs)
    apart = [b - a for a, b in zip(own, other, strict=True)]
    if headline.kind == "steady":
        far = [[abs(score - median(row)) for score in row] for row in (own, other)]
        apart = [a - b for a, b in zip(*far, strict=True)]
    shift = NEAR if headline.kind == "close" else 0.0
    found = interval([gap + shift for gap in apart], "mean", 0.0, None, 0)
    words = {"above": "holds", "below": "DOES NOT HOLD", "within": "undecided"}
    here = words.get(verdict(found), "one seed, no verdict")
    return apart, interval(apart, "mean", 0.0, None, 0), here


def line(headline: Headline, rows: dict[tuple[str, str], dict]) -> tuple[str, str]:
    """Return a headline's row of the page and its verdict."""
    both = [rows.get((headline.claim, name)) for name in (headline.first, headline.second)]
    if None in both:
        return f"| {headline.paper} | {headline.says} |  |  |  |  |  | not run |", "not run"
    apart, gap, here = judged(headline, *both)
    mean = f"{fmean(apart):+.2f}" + (f" ({gap.low:+.2f} to {gap.high:+.2f})" if gap else "")
    chance = sign_flips(apart)
    scores = [f"{row['row']} {spread(row['test'])}" for row in both]
    return (
        f"| {headline.paper} | {headline.says} | {' | '.join(scores)} | {mean} | "
        f"{'-' if chance is None else f'{chance:.3f}'} | {len(apart)} | {here} |"
    ), here


def sign_flips(gaps: list[float]) -> float | None:
    """Return the two-sided p-value of sign flips; None for three pairs, which can never tell."""
    sums = [abs(sum(flip)) for flip in product(*((-gap, gap) for gap in gaps))]
    least = abs(sum(gaps)) - 1e-12
    return sum(total >= least for total in sums) / len(sums) if len(gaps) > 3 else None


def spread(scores: list[float]) -> str:
    """Return mean and standard deviation."""
    return f"{fmean(scores):.2f}" + (f" ± {stdev(scores):.2f}" if len(scores) > 1 else "")


def page(stored: list[dict]) -> str:
    """Return the page as Markdown."""
    rows = {(row["claim"], row["row"]): row for row in stored}
    verdicts = [line(headline, rows) for headline in HEADLINES]
    own = [row for row in stored if row["claim"] in WANTED]
    few = sorted({row["claim"] for row in own if len(row["seeds"]) < len(SEEDS.split(","))})
    day = max((row["date"] for row in own), default="no day")
    minutes = sum(seconds(own).values()) / 60
    counts = ", ".join(f"{word}: {n}" for word, n in Counter(here for _, here in verdicts).items())
    lines = [
        "# What the papers claim, in miniature",
        "",
        f"Results of {day}, {masks(own)}: pocket backbones and tasks, honest protocol, test",
        "scores.",
        f"{len(verdicts)} claims. {counts}.",
        "`make claims` runs all claims offline, two at a time. By the seconds of these runs, five",
        f"seeds each take {minutes:.0f} minutes on one core.",
        "",
        "The difference is the second row minus the first, seed by seed, with the 95 % interval of",
        "its mean (Student's t). A claim holds",
        f"if the interval is above 0, or above -{NEAR:g} for `close to`. For `less variance` the",
        "difference is the reduction of a seed's distance to its row's median. p is from a",
        "two-sided sign-flip test. It is at least 0.062 for five seeds and not given for three. If",
        "p is large and the interval is above 0, the result rests on few seeds.",
        *(["", f"Claims with fewer than five seeds so far: {'; '.join(few)}."] if few else []),
        "",
        "| paper | says | first | second | difference | p | seeds | here |",
        "|---|---|---|---|---|---|---|---|",
        *(row for row, _ in verdicts),
    ]
    notes: dict[str, list[str]] = {}
    for headline, (_, here) in zip(HEADLINES, verdicts, strict=True):
        if here not in ("holds", "not run") and headline.done:
            notes.setdefault(headline.done, []).append(
                f"{headline.paper}: {headline.says} ({here})"
            )
    if notes:
        lines += ["", "## What was tried where a claim does not hold", ""]
        for done, which in notes.items():
            lines += [*(f"- {one}" for one in which), "", f"  {done}", ""]
    lines += ["", "## Left out", "", LEFT_OUT, "", *curve(rows)]
    return "\n".join(lines).rstrip() + "\n"


def curve(rows: dict[tuple[str, str], dict]) -> list[str]:
    """Return the lines of DPT's curve over texts a class."""
    lines = [
        "## DPT on topics: a curve over texts a class",
        "",
        "Fine-tuning (FT) and DPT on 14 topics, test accuracy. Fewer texts have more epochs. The",
        "best epoch on dev is reported.",
        "",
        "| texts a class | epochs | seeds | FT | DPT | DPT - FT |",
        "|---|---|---|---|---|---|",
    ]
    for claim, (texts, epochs) in CURVE.items():
        both = [rows.get((claim, name)) for name in ("FT", "DPT")]
        if None in both:
            lines.append(f"| {texts} | {epochs} |  |  |  | not run |")
            continue
        apart = judged(Headline("", "", claim, "FT", "DPT"), *both)[0]
        scores = " | ".join(spread(row["test"]) for row in both)
        lines.append(f"| {texts} | {epochs} | {len(apart)} | {scores} | {fmean(apart):+.2f} |")
    return [*lines, "", MEANING]


def seconds(stored: list[dict]) -> dict[str, float]:
    """Return the seconds of each claim with five seeds, from stored runs."""
    found: dict[str, float] = {}
    for row in stored:
        own = row["seconds"] * len(SEEDS.split(",")) + START_UP
        found[row["claim"]] = found.get(row["claim"], FIRST.get(row["claim"], 0)) + own
    return found


def main() -> None:
    """Run what is not finished and write the page."""
    parser = arguments(__doc__)
    parser.add_argument("--seeds", default=SEEDS)
    parser.add_argument("--outputs", type=Path, default=Path("outputs/claims"))
    parser.add_argument("--only", nargs="*", choices=list(WANTED), help="claims; default: all")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--set", nargs="+", default=[], help="options of every run")
    parser.add_argument("--estimate", action="store_true")
    parser.add_argument("--page", action="store_true")
    given = parser.parse_args()
    given.data = given.models = None
    file = given.out / "learning.json"
    if given.estimate:
        for claim, took in seconds([r for r in kept(file, []) if r["claim"] in WANTED]).items():
            print(f"{took:6.0f} s  {claim}")
        return
    if not given.page:
        run(given)
    found = page(kept(file, []))
    (given.out / "claims.md").write_text(found)
    print(found)


def run(given: argparse.Namespace) -> None:
    """Run the claims, the longest first, one core each; save each when it ends."""
    os.environ["OMP_NUM_THREADS"] = "1"
    took = seconds(kept(RESULTS / "learning.json", []))
    wanted = [c for c in CLAIMS if c.name in WANTED and (not given.only or c.name in given.only)]
    wanted.sort(key=lambda claim: -took.get(claim.name, 0))
    with ThreadPoolExecutor(given.jobs) as pool:
        waiting = [pool.submit(learning.results, claim, given) for claim in wanted]
        for done in as_completed(waiting):
            try:
                learning.write(done.result(), given.out)
            except subprocess.CalledProcessError as error:
                print(f"not finished: {error}. Type the same command to resume.", file=sys.stderr)


if __name__ == "__main__":
    main()
