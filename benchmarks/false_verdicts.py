"""How often the ledger finds a difference where there is none, by statistic and number of seeds.

    python benchmarks/false_verdicts.py        writes benchmarks/results/false_verdicts.md

Both sides draw from one pool of scores. The paper prints what its table prints of its draws; ours
is compared with it as `ptrun report --paper` does. At most 6 of 100 verdicts may be false.
"""

import random
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from ptrun.ledger.statistics import interval, statistic_of, verdict

TRIALS = 10_000
RESULT = Path(__file__).parent / "results" / "false_verdicts.md"
Draw = Callable[[random.Random], float]
CASES = [
    *(("single", count, False) for count in (3, 5, 10)),
    *(("mean", count, False) for count in (3, 5)),
    *(("mean", count, True) for count in (3, 5)),
    ("best_3", 10, False),
    *(("max", count, False) for count in (5, 10)),
]
POOLS: dict[str, Draw] = {
    "normal": lambda dice: dice.gauss(80, 1.5),
    "250 examples": lambda dice: sum(dice.random() < 0.8 for _ in range(250)) / 2.5,
    "skewed": lambda dice: 82 - dice.expovariate(1 / 1.5),
    "one of ten collapsed": lambda dice: dice.gauss(50 if dice.random() < 0.1 else 80, 1.5),
}


def false_verdicts(name: str, count: int, draw: Draw, *, printed: bool) -> float:
    """Return the share of verdicts other than `within`, in percent."""
    dice = random.Random(1)
    pool = [draw(dice) for _ in range(20_000)]
    wrong = sum(_differs(name, count, pool, dice, printed=printed) for _ in range(TRIALS))
    return 100 * wrong / TRIALS


def _differs(
    name: str, count: int, pool: Sequence[float], dice: random.Random, *, printed: bool
) -> bool:
    ours, theirs = dice.choices(pool, k=count), dice.choices(pool, k=count)
    paper = theirs[0] if name == "single" else statistic_of(name)(theirs)
    std = statistics.stdev(theirs) if printed else None
    return verdict(interval(ours, name, round(paper, 1), std, count, unit=0.1)) != "within"


def main() -> None:
    """Measure all cases and write the page."""
    lines = [
        "# False verdicts where both sides are the same, in percent",
        "",
        f"{TRIALS:,} trials each: `python benchmarks/false_verdicts.py`. Intervals are made for "
        "normal scores. Scores of a finite test set are covered too. Skewed scores and collapsed "
        "seeds are not normal; their columns show how far the promise reaches.",
        "",
        f"| statistic | seeds | {' | '.join(POOLS)} |",
        f"| --- | ---: |{' ---: |' * len(POOLS)}",
    ]
    for name, count, printed in CASES:
        shares = [false_verdicts(name, count, draw, printed=printed) for draw in POOLS.values()]
        title = f"{name}, deviation printed" if printed else name
        lines.append(f"| {title} | {count} | {' | '.join(f'{share:.1f}' for share in shares)} |")
        print(lines[-1], flush=True)
    lines += ["", "A vote of seeds is one number without a spread, so it has no verdict.", ""]
    RESULT.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
