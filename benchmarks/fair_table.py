"""A table of methods at equal trials on two real models, in pieces that resume.

    python benchmarks/fair_table.py --weights weights --data DIR --outputs DIR --minutes 120

Each cell is a command of `ptrun compare`: 6 trials, 5 fresh seeds, at most 200 steps. A cell that
is not finished in time goes on with the next call. The page, `results/fair_table.md`, has the cells
that are finished.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from running import PTRUN, RESULTS, arguments, keep, kept, lines

FILE, PAGE = RESULTS / "fair_table.json", RESULTS / "fair_table.md"
TRIALS, SEEDS = 6, 5
BGE = ("backbone=bge_small_en", "backbone.path={weights}/bge_small_en", "hardware.precision=bf16")
BGE += ("train.max_steps=200", "train.eval_every=100", "train.batch_size=16", "setting.dev=200")
SMOLLM = ("backbone=smollm2_135m", "backbone.path={weights}/smollm2_135m")
SMOLLM += ("hardware.precision=bf16", "forgetting={texts}", "train.batch_size=8")
SHORT = ("train.max_steps=100", "train.eval_every=50")
ENCODED = "prompt_tuning,residual_prompt,dept,ptuning_v2,idpg_s,lora,ia3,adapter,fine_tuning"
DECODED = "manual_prompt,in_context,instruction,prompt_tuning,residual_prompt,ptuning_v2,lora,ia3"
SUMS = ("task.source.options={{max_terms:2,max_digits:2}}", "readout.max_new_tokens=8")
SUMS += ("task.source.rows={{train:2000,validation:100,test:300}}", *SHORT)
CELLS = {
    "TREC": (f"method={ENCODED}", "task=trec", "setting=k_1000", *BGE),
    "Subj": (f"method={ENCODED}", "task=subj", "setting=k_1000", *BGE),
    "SST-2": (f"method={ENCODED}", "task=sst2", "setting=k_1000", *BGE),
    "sums": (f"method={DECODED},fine_tuning", "task=reasoning_gym", *SMOLLM, *SUMS),
    "SST-2, SmolLM2": (
        *(f"method={DECODED},fine_tuning", "task=sst2", "setting=k_1000", "readout=verbalizer"),
        *("readout.pattern=ppt_hybrid", *SMOLLM, *SHORT),
    ),
}


def overrides(name: str, places: dict[str, Path]) -> list[str]:
    """Return the overrides of a cell."""
    folder = name.lower().replace(", ", "_").replace(" ", "_")
    where = [f"data_dir={places['data']}", f"outputs={places['outputs']}", f"name={folder}"]
    where += ["sweep.devices=2"]
    return [*(option.format(**places) for option in CELLS[name]), *where]


def done(line: Sequence[str], deadline: float) -> bool:
    """Do a command until a time; return whether it ended well."""
    running = subprocess.Popen(line)
    try:
        return running.wait(timeout=max(1.0, deadline - time.monotonic())) == 0
    except subprocess.TimeoutExpired:
        running.send_signal(signal.SIGTERM)  # runs save their state and go on later
        running.wait(timeout=120)
        return False


def table(typed: Sequence[str]) -> str:
    """Return the tables of a finished comparison in Markdown."""
    from ptrun.command.compare import compared
    from ptrun.reporting import comparison, formats

    parts = comparison.parts(compared(typed, trials=TRIALS, seeds=SEEDS)[1], "")
    return "\n\n".join(formats.markdown(part.table) for part in parts if part.table)


def page(figures: dict) -> Iterator[str]:
    """Yield the lines of the page."""
    yield "# Methods at equal trials on real models\n"
    yield (
        f"Each method has {TRIALS} trials from its own space (`conf/search`), chosen on dev; the "
        f"winner has {SEEDS} fresh seeds, scored once on test. `docs/howto/fair.md` explains the "
        "columns. `python benchmarks/fair_table.py` makes this page of the cells that are finished."
    )
    for name, cell in figures.items():
        yield f"\n## {name}\n\n`{cell['command']}`\n\n{cell['table']}"


def main() -> None:
    """Do cells until the time is over, and write the page."""
    parser = arguments(__doc__)
    for name in ("weights", "data", "outputs"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so many")
    parser.add_argument("--only", choices=list(CELLS), nargs="*", help="default: all cells")
    args = parser.parse_args()
    texts = args.outputs / "texts.txt"
    places = {"weights": args.weights.resolve(), "data": args.data.resolve()}
    places |= {"outputs": args.outputs.resolve(), "texts": texts.resolve()}
    args.outputs.mkdir(parents=True, exist_ok=True)
    if not texts.is_file():
        texts.write_text("\n".join(corpus(args.data)) + "\n", encoding="utf-8")
    os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    deadline, figures = time.monotonic() + 60 * args.minutes, kept(FILE, {})
    for name in args.only or CELLS:
        typed = overrides(name, places)
        line = [*PTRUN, "compare", *typed, f"trials={TRIALS}", f"seeds={SEEDS}"]
        if time.monotonic() >= deadline or not done(line, deadline):
            continue
        shown = " ".join(["ptrun compare", *CELLS[name], f"trials={TRIALS}", f"seeds={SEEDS}"])
        figures[name] = {"command": shown, "table": table(typed)}
        keep(FILE, figures)
        PAGE.write_text("\n".join(page(figures)) + "\n", encoding="utf-8")


def corpus(data: Path, count: int = 100) -> list[str]:
    """Return texts of the validation part of a corpus, a line each."""
    documents = lines(data, "corpus_en/validation")[:count]
    return [row["doc"].replace("\n", " ") for row in documents]


if __name__ == "__main__":
    main()
