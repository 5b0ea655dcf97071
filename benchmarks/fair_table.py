"""A table of methods at equal trials on two real models, in pieces that resume.

    python benchmarks/fair_table.py --weights weights --data DIR --outputs DIR --minutes 120

Each cell is a command of `ptrun compare`: 6 trials, 5 fresh seeds, at most 200 steps. A cell that
is not finished in time goes on with the next call. The page, `results/fair_table.md`, has the cells
that are finished.
"""

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from running import PTRUN, RESULTS, arguments, keep, kept, lines

FILE, PAGE = RESULTS / "fair_table.json", RESULTS / "fair_table.md"
TRIALS, SEEDS = 6, 5
KEPT = ("task", "backbone", "method", "score", "half_interval", "learned", "tokens_added")
BGE = ("backbone=bge_small_en", "backbone.path={weights}/bge_small_en", "setting=k_1000")
BGE += ("setting.dev=200", "train.max_steps=200", "train.eval_every=100", "train.batch_size=16")
SMOLLM = ("backbone=smollm2_135m", "backbone.path={weights}/smollm2_135m", "forgetting={texts}")
SMOLLM += ("train.max_steps=60", "train.eval_every=60", "train.batch_size=8")
ENCODED = "prompt_tuning,residual_prompt,dept,ptuning_v2,idpg_s,lora,ia3,adapter,fine_tuning"
DECODED = "manual_prompt,in_context,instruction,prompt_tuning,ptuning_v2,lora,ia3,fine_tuning"
SUMS = ("task.source.options={{max_terms:2,max_digits:2}}", "readout.max_new_tokens=8")
SUMS += ("task.source.rows={{train:2000,validation:100,test:300}}",)
WORDS = "description:[description],entity:[thing],abbreviation:[term]"
WORDS += ",human:[person],location:[place],number:[number]"
ASKED = ("setting=k_1000", "setting.dev=200", "readout=verbalizer", "readout.pattern=asked")
ASKED += ('+task.pvps.asked.pattern="Question: {{~text}} The answer is a {{mask}}"',)
ASKED += (f"+task.pvps.asked.words={{{{{WORDS}}}}}",)
CELLS = {
    "TREC": (f"method={ENCODED}", "task=trec", *BGE),
    "TREC, SmolLM2": (f"method={DECODED}", "task=trec", *ASKED, *SMOLLM),
    "sums, SmolLM2": (f"method={DECODED}", "task=reasoning_gym", *SUMS, *SMOLLM),
    "Subj": (f"method={ENCODED}", "task=subj", *BGE),
    "SST-2": (f"method={ENCODED}", "task=sst2", *BGE),
}
INSTRUCTIONS = {
    "TREC, SmolLM2": (
        "Say what each question asks for: a description, thing, term, person, place or number.",
        "Classify the question by its answer: description, thing, term, person, place, number.",
        "What kind of answer does the question want?",
        "Choose one of: description, thing, term, person, place, number.",
        "Who asks for a person, where for a place, how many for a number, why for a description.",
        "The answer to a question is a person, place, number, thing, term or description.",
    ),
    "sums, SmolLM2": (
        "Add and subtract the numbers. Write the result alone.",
        "Calculate, and write one number.",
        "Each question is a calculation with two numbers, and its answer is an integer.",
        "You are a calculator.",
        "Solve the problem step by step in your head, and write the result.",
        "The answer may be negative.",
    ),
}
RATES = {"prompt_tuning": 3e-2, "ptuning_v2": 1e-5, "lora": 5e-5, "ia3": 5e-5}
"""The fixed rates of PEFT-Bench's examples for Llama-3-8B-Instruct; ptuning_v2 is its prefix."""


def overrides(name: str, places: dict[str, Path]) -> list[str]:
    """Return the overrides of a cell."""
    folder = name.lower().replace(", ", "_").replace(" ", "_")
    where = [f"data_dir={places['data']}", f"outputs={places['outputs']}", f"name={folder}"]
    options = [option.format(**places) for option in CELLS[name]]
    return [*options, "hardware.precision=bf16", "sweep.devices=2", *where]


def done(line: Sequence[str], deadline: float) -> bool:
    """Do a command until a time; return whether it ended well."""
    running = subprocess.Popen(line)
    try:
        return running.wait(timeout=max(1.0, deadline - time.monotonic())) == 0
    except subprocess.TimeoutExpired:
        running.send_signal(signal.SIGTERM)  # runs save their state and go on later
        running.wait(timeout=120)
        return False


def compared(typed: Sequence[str]) -> list[dict]:
    """Return the rows of a finished comparison."""
    from ptrun.command import compare

    return compare.compared(typed, trials=TRIALS, seeds=SEEDS)[1]


def table(rows: Sequence[dict]) -> str:
    """Return the tables of a comparison in Markdown."""
    from ptrun.reporting import comparison, formats

    parts = comparison.parts(rows, "")
    return "\n\n".join(formats.markdown(part.table) for part in parts if part.table)


def fixed(typed: Sequence[str], rows: Sequence[dict], deadline: float) -> str | None:
    """Do the winners of a comparison again with fixed rates; return a table of both.

    All else of a winner stays, such as its length. None if the time is over first.
    """
    from ptrun.folder import result
    from ptrun.folder.find import RunFolder
    from ptrun.reporting.comparison import interval

    name, scores = f"{typed[-1]}_fixed", {}
    common = [text for text in typed if not text.startswith(("method=", "name="))]
    for row in (row for row in rows if row["method"] in RATES):
        method, rate = row["method"], RATES[row["method"]]
        other = [text for text in row["chosen"].split() if not text.startswith("train.lr=")]
        seeds = "seed=" + ",".join(map(str, row["seeds"]))
        line = [*PTRUN, "-m", *common, f"method={method}", *other, f"train.lr={rate}", seeds, name]
        if time.monotonic() >= deadline or not done(line, deadline):
            return None
        folders = Path(common[-1].partition("=")[2], name.partition("=")[2]).glob(f"{method}-*")
        runs = [RunFolder(folder, result.read(folder)) for folder in folders]
        rated = dict(text.partition("=")[::2] for text in row["chosen"].split())["train.lr"]
        searched = (rated, row["score"], row["half_interval"])
        scores[method] = (*searched, f"{rate:g}", *interval(runs)[::-1])
    return "\n".join(ranks(scores))


def ranks(scores: dict[str, tuple]) -> Iterator[str]:
    """Yield the lines of a table of scores with searched and with fixed rates."""
    yield "| method | searched rate | accuracy | rank | PEFT-Bench's rate | accuracy | rank |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    columns = ([score[place] for score in scores.values()] for place in (1, 4))
    first, second = (sorted(column, reverse=True) for column in columns)
    for method, (rated, a, half_a, rate, b, half_b) in scores.items():
        yield (
            f"| {method} | {rated} | {a:.2f} ± {half_a:.2f} | {first.index(a) + 1} | {rate} | "
            f"{b:.2f} ± {half_b:.2f} | {second.index(b) + 1} |"
        )


def sharing(typed: Sequence[str]) -> str:
    """Do six short runs that share passes, and again one by one; return a line with both times."""
    common = [text for text in typed if not text.startswith(("method=", "name=", "sweep."))]
    common += ["method=prompt_tuning", "method.length=5", "seed=1,2,3,4,5,6", "train.max_steps=40"]
    took = {}
    for share in ("auto", "none"):
        start = time.monotonic()
        own = [f"sweep.share={share}", f"name=share_{share}", "rerun=true"]
        subprocess.run([*PTRUN, "-m", *common, *own], check=True, stdout=subprocess.DEVNULL)
        took[share] = time.monotonic() - start
    return (
        f"Six runs of prompt tuning on TREC, 40 steps and two evaluations each, on one thread: "
        f"{took['auto']:.0f} s together, {took['none']:.0f} s one by one, "
        f"{took['none'] / took['auto']:.2f} times as long."
    )


def page(cells: dict) -> Iterator[str]:
    """Yield the lines of the page."""
    yield "# Methods at equal trials on real models\n"
    yield (
        f"Each method has {TRIALS} trials from its own space, chosen on dev, and {SEEDS} fresh "
        "seeds, scored once on test. Intervals are over seeds and, of accuracy, over test rows "
        "too. `docs/howto/fair.md` explains the columns. `python benchmarks/fair_table.py` makes "
        "this page of the cells that are finished."
    )
    for name, cell in cells.items():
        yield f"\n## {name}\n\n`{cell['command']}`\n\n{cell['table']}"
        if name in INSTRUCTIONS:
            yield "\nThe candidates of `instruction`, from 0:\n"
            yield from (f"{i}. {text}" for i, text in enumerate(INSTRUCTIONS[name]))
        if "fixed" in cell:
            yield f"\n### {name}: searched and fixed rates\n"
            yield "Only `train.lr` differs: all else is what dev chose with the searched rate.\n"
            yield cell["fixed"]
        if "sharing" in cell:
            yield f"\n### What sharing passes saved\n\n{cell['sharing']}"


def main() -> None:
    """Do cells until the time is over, and write the page."""
    parser = arguments(__doc__)
    for name in ("weights", "data", "outputs"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so many")
    parser.add_argument("--only", choices=list(CELLS), nargs="*", help="default: all cells")
    args = parser.parse_args()
    places = {name: getattr(args, name).resolve() for name in ("weights", "data", "outputs")}
    places["texts"] = places["outputs"] / "texts.txt"
    candidates, settings = places["outputs"] / "instructions.txt", places["outputs"] / "settings"
    space = settings / "ptrun" / "conf" / "search" / "instruction.yaml"
    space.parent.mkdir(parents=True, exist_ok=True)
    space.write_text(f'method.text: "@{candidates}"\nmethod.candidate: range(0,{TRIALS})\n')
    if not places["texts"].is_file():
        places["texts"].write_text("\n".join(corpus(args.data)) + "\n", encoding="utf-8")
    os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "XDG_CONFIG_HOME": str(settings)}
    deadline, cells = time.monotonic() + 60 * args.minutes, kept(FILE, {"cells": {}})["cells"]
    for name in args.only or CELLS:
        candidates.write_text("\n".join(INSTRUCTIONS.get(name, ())) + "\n", encoding="utf-8")
        typed = overrides(name, places)
        line = [*PTRUN, "compare", *typed, f"trials={TRIALS}", f"seeds={SEEDS}"]
        if time.monotonic() >= deadline or not done(line, deadline):
            continue
        rows, shown = compared(typed), overrides(name, {place: Path(place) for place in places})
        command = f"ptrun compare {shlex.join(shown)} trials={TRIALS} seeds={SEEDS}"
        before = cells.get(name, {})
        cells[name] = {"command": command, "table": table(rows)}
        cells[name]["rows"] = [{key: row[key] for key in KEPT} for row in rows]
        if name == "TREC" and (rates := fixed(typed, rows, deadline)):
            cells[name] |= {"fixed": rates, "sharing": before.get("sharing") or sharing(typed)}
        keep(FILE, {"trials": TRIALS, "seeds": SEEDS, "cells": cells})
        PAGE.write_text("\n".join(page(cells)) + "\n", encoding="utf-8")


def corpus(data: Path, count: int = 20, words: int = 60) -> list[str]:
    """Return the beginnings of texts of the validation part of a corpus, a line each."""
    documents = lines(data, "corpus_en/validation")[:count]
    return [" ".join(row["doc"].split()[:words]) for row in documents]


if __name__ == "__main__":
    main()
