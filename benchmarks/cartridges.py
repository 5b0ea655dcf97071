"""Compare prefixes that stand for a document: KL to the document in view, on people's questions.

    make weights && python benchmarks/cartridges.py --data DIR [--weights weights/smollm2_135m]

The document is the first paragraphs, 1,000 tokens, of the article of DIR/squad with the most
questions about them. SmolLM2 is taught by its own questions and answers (self-study); 30 of
SQuAD's questions are dev, 60 are test, and none is in train. Each trained method has 200 steps of
2 rows and three seeds; the rate of cartridges was chosen on dev, with 100 steps. Writes
results/cartridges.md.
"""

import argparse
import gzip
import json
import random
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from running import HERE, RESULTS, keep, kept, ptrun, results
from scipy import stats

TOKENS, LENGTH, STEPS = 1000, 64, 200
FIGURES = RESULTS / "cartridges.json"
FIRST_TOKENS = "cartridge, first tokens"
NEXT = "cartridge, next words of the document"
SIZES = {"dev": 30, "test": 60}
STUDY = ("readout.self_study=128", "readout.chunk=250")
LEARNS = (f"train.max_steps={STEPS}", "train.batch_size=2", f"train.eval_every={STEPS // 4}")
FIRST = f"method.length={LENGTH}"
TRAINED = {
    FIRST_TOKENS: ("method=cartridge", FIRST, "train.lr=0.005"),
    "cartridge, random start": (
        *("method=cartridge", FIRST, "start=random", "method.frozen_vectors=0", "train.lr=0.005"),
    ),
    "LoRA of equal bytes": (
        *("method=lora", "readout=distillation", "method.rank=13", "train.lr=0.001"),
    ),
}
FIXED = {
    "no document": ("method=manual_prompt", "readout=distillation"),
    "untrained, first tokens: a document cut to 64": ("method=cartridge", FIRST),
    "untrained, spread tokens": ("method=cartridge", FIRST, "start=spread:@{document}"),
    "untrained, random": ("method=cartridge", FIRST, "start=random"),
    "whole document": ("method=cartridge", "method.length=null"),
}


def article(data: Path, tokenizer: Any) -> tuple[str, list[dict[str, Any]]]:
    """Return the text of an article's first paragraphs, and the questions about them."""
    lines = gzip.decompress((data / "squad" / "validation.jsonl.gz").read_bytes()).decode()
    articles = defaultdict(list)
    for row in map(json.loads, lines.splitlines()):
        articles[row["title"]].append(row)
    found: tuple[str, list[dict[str, Any]]] = ("", [])
    for rows in articles.values():
        kept: list[str] = []
        for paragraph in dict.fromkeys(row["context"] for row in rows):
            if len(tokenizer("\n\n".join([*kept, paragraph])).input_ids) > TOKENS:
                break
            kept.append(paragraph)
        own = [row for row in rows if row["context"] in kept]
        found = max(found, ("\n\n".join(kept), own), key=lambda pair: len(pair[1]))
    return found


def written(rows: Sequence[dict[str, Any]], text: str, folder: Path) -> list[str]:
    """Write the document and the parts; return the options of the task."""
    (folder / "document.txt").write_text(text, encoding="utf-8")
    own = list({row["question"]: row for row in rows}.values())
    random.Random(0).shuffle(own)
    options, start = ["task=csv", "task.messages=messages"], 0
    for part, count in {**SIZES, "train": len(own)}.items():
        file = folder / f"{part}.jsonl"
        turns = [
            [
                {"role": "user", "content": row["question"]},
                {"role": "assistant", "content": row["answers"]["text"][0]},
            ]
            for row in own[start : start + count]
        ]
        file.write_text("".join(json.dumps({"messages": t}) + "\n" for t in turns))
        options.append(f"task.{part}={file}")
        start += count
    return options


def windows(text: str, tokenizer: Any, folder: Path) -> list[str]:
    """Write the document in overlapping windows; return the options of a task to continue it."""
    ids = tokenizer(text).input_ids
    cut = [(ids[i : i + 64], ids[i + 64 : i + 96]) for i in range(0, len(ids) - 96, 32)]
    rows = [{"before": tokenizer.decode(a), "after": tokenizer.decode(b)} for a, b in cut]
    files = {"train": rows, "dev": rows[:2], "test": rows[:2]}
    for part, own in files.items():
        text = "".join(json.dumps(row) + "\n" for row in own)
        (folder / f"lm_{part}.jsonl").write_text(text, encoding="utf-8")
    options = ["task=csv", "task.text=before", "task.answer=after", "protocol=paper"]
    return [*options, *(f"task.{part}={folder / f'lm_{part}.jsonl'}" for part in files)]


def runs(folder: Path, *options: str) -> list[dict[str, Any]]:
    """Return the results of the runs that a command makes."""
    before = {run["run_id"] for run in results(folder)} if folder.is_dir() else set()
    ptrun("-m", *options, f"outputs={folder}")
    return [run for run in results(folder) if run["run_id"] not in before]


def fixed(common: Sequence[str], folder: Path) -> dict[str, list[float]]:
    """Return the KL of what learns nothing."""
    found = {}
    place = {"document": folder / "document.txt"}
    for name, own in FIXED.items():
        frozen = ["method.frozen_vectors=null"] if own[0] == "method=cartridge" else []
        options = [*common, *(one.format_map(place) for one in own), *frozen]
        found[name] = [run["metrics"]["test"]["kl"] for run in runs(folder / "out", *options)]
    return found


def trained(common: Sequence[str], own: Sequence[str], folder: Path) -> list[float]:
    """Return the KL of a method by seed."""
    done = runs(folder / "out", *common, *own, *LEARNS, *STUDY, "seed=1,2,3")
    return [run["metrics"]["test"]["kl"] for run in done]


def by_next_word(common: Sequence[str], options: Sequence[str], folder: Path) -> list[float]:
    """Return the KL of prefixes that are trained to continue the document."""
    start, out = f"start=context:@{folder / 'document.txt'}", folder / "out"
    own = [*options, "method=cartridge", "readout=writing", "readout.loss_on=all", FIRST, start]
    own += [*LEARNS, "train.lr=0.005", "readout.max_new_tokens=32", "seed=1,2,3"]
    again = [*common, "method=cartridge", FIRST, "method.frozen_vectors=null"]
    return [
        other["metrics"]["test"]["kl"]
        for run in runs(out, *own)
        for other in runs(out, *again, f"seed={run['seed']}", f"start=run:{run['run_id']}")
    ]


def interval(first: Sequence[float], second: Sequence[float]) -> str:
    """Return the mean difference of paired seeds with its 95 % interval."""
    apart = [a - b for a, b in zip(first, second, strict=True)]
    mean = sum(apart) / len(apart)
    low, high = stats.t.interval(0.95, len(apart) - 1, loc=mean, scale=stats.sem(apart))
    return f"{mean:+.3f} ({low:+.3f} to {high:+.3f})"


def page(found: Mapping[str, list[float]], tokens: int) -> str:
    """Return the table, with the differences of the trained prefix from the others."""
    best = found[FIRST_TOKENS]
    lines = [
        "# Prefixes that stand for a document", "",
        f"SmolLM2-135M-Instruct (weights of 4 bits), {tokens} tokens of a SQuAD article, prefixes "
        f"of {LENGTH} vectors, {STEPS} steps of 2 rows of self-study, fp32. KL to the whole "
        "document in view on 60 questions of people and their answers, in nats a token; lower is "
        "better. `python benchmarks/cartridges.py`", "",
        "| | KL by seed | trained cartridge less this, 95 % interval |", "|---|---|---|",
    ]  # fmt: skip
    for name, own in found.items():
        apart = interval(best, own * (len(best) // len(own))) if own is not best else ""
        lines.append(f"| {name} | {', '.join(f'{one:.3f}' for one in own)} | {apart} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Train, compare, and write the page."""
    from transformers import AutoTokenizer

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--weights", type=Path, default=HERE.parent / "weights" / "smollm2_135m")
    parser.add_argument("--keep", action="store_true", help="go on with the figures that are there")
    given = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(given.weights)
    text, rows = article(given.data, tokenizer)
    backbone = [
        "backbone=smollm2_135m",
        f"backbone.path={given.weights}",
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        task = written(rows, text, folder)
        common = [*task, *backbone, f"readout.document=@{folder / 'document.txt'}"]
        common += ["readout.max_new_tokens=16", "hardware.token_budget=4096"]
        size = len(tokenizer(text).input_ids)
        found: dict[str, list[float]] = kept(FIGURES, {}) if given.keep else {}
        jobs = {name: partial(trained, common, own, folder) for name, own in TRAINED.items()}
        options = [*windows(text, tokenizer, folder), *backbone]
        jobs = {
            FIRST_TOKENS: jobs.pop(FIRST_TOKENS),
            NEXT: partial(by_next_word, common, options, folder),
            **jobs,
        }
        if not found:
            found = fixed(common, folder)
        for name, measure in jobs.items():
            if name not in found:
                found[name] = measure()
                keep(FIGURES, found)
                (RESULTS / "cartridges.md").write_text(page(found, size), encoding="utf-8")


if __name__ == "__main__":
    main()
