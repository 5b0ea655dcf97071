"""Compare prefixes that stand for a document: KL to the document in view, on people's questions.

    make weights && python benchmarks/cartridges.py --data DIR [--weights weights/smollm2_135m]
        [--only NAME ...] [--tokens 1000] [--questions 30 60] [--set KEY=VALUE ...]

The document is the first paragraphs, 1,000 tokens, of the article of DIR/squad with the most
questions about them. SmolLM2 is taught by its own questions and answers (self-study); 30 of
SQuAD's questions are dev, 60 are test, and none is in train. Each trained method has 200 steps of
2 rows and three seeds; the rate of cartridges was chosen on dev, with 100 steps. Writes
results/cartridges.{json,md}.
"""

import json
import random
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from running import HERE, arguments, keep, kept, lines, ptrun, results

LENGTH, STEPS = 64, 200
Runs = Callable[..., list[dict[str, Any]]]
FIRST_TOKENS = "cartridge, first tokens"
NEXT = "cartridge, next words of the document"
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


def article(data: Path, tokenizer: Any, tokens: int) -> tuple[str, list[dict[str, Any]]]:
    """Return the text of an article's first paragraphs, and the questions about them."""
    articles = defaultdict(list)
    for row in lines(data, "squad/validation"):
        articles[row["title"]].append(row)
    found: tuple[str, list[dict[str, Any]]] = ("", [])
    for rows in articles.values():
        kept: list[str] = []
        for paragraph in dict.fromkeys(row["context"] for row in rows):
            if len(tokenizer("\n\n".join([*kept, paragraph])).input_ids) > tokens:
                break
            kept.append(paragraph)
        own = [row for row in rows if row["context"] in kept]
        found = max(found, ("\n\n".join(kept), own), key=lambda pair: len(pair[1]))
    return found


def written(
    rows: Sequence[dict[str, Any]], text: str, folder: Path, sizes: Sequence[int]
) -> list[str]:
    """Write the document and the parts; return the options of the task."""
    (folder / "document.txt").write_text(text, encoding="utf-8")
    own = list({row["question"]: row for row in rows}.values())
    random.Random(0).shuffle(own)
    options, start = ["task=csv", "task.messages=messages"], 0
    for part, count in zip(("dev", "test", "train"), (*sizes, len(own)), strict=True):
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


def runs(folder: Path, more: Sequence[str], *options: str) -> list[dict[str, Any]]:
    """Return the results of the runs that a command makes; `more` are its last options."""
    before = {run["run_id"] for run in results(folder)} if folder.is_dir() else set()
    ptrun("-m", *options, *more, f"outputs={folder}")
    return [run for run in results(folder) if run["run_id"] not in before]


def fixed(do: Runs, own: Sequence[str], common: Sequence[str], document: Path) -> list[float]:
    """Return the KL of what learns nothing."""
    frozen = ["method.frozen_vectors=null"] if own[0] == "method=cartridge" else []
    options = [*common, *(one.format(document=document) for one in own), *frozen]
    return [run["metrics"]["test"]["kl"] for run in do(*options)]


def trained(do: Runs, own: Sequence[str], common: Sequence[str]) -> list[float]:
    """Return the KL of a method by seed."""
    done = do(*common, *own, *LEARNS, *STUDY, "seed=1,2,3")
    return [run["metrics"]["test"]["kl"] for run in done]


def by_next_word(
    do: Runs, options: Sequence[str], common: Sequence[str], document: Path
) -> list[float]:
    """Return the KL of prefixes that are trained to continue the document."""
    start = f"start=context:@{document}"
    own = [*options, "method=cartridge", "readout=writing", "readout.loss_on=all", FIRST, start]
    own += [*LEARNS, "train.lr=0.005", "readout.max_new_tokens=32", "seed=1,2,3"]
    again = [*common, "method=cartridge", FIRST, "method.frozen_vectors=null"]
    return [
        other["metrics"]["test"]["kl"]
        for run in do(*own)
        for other in do(*again, f"seed={run['seed']}", f"start=run:{run['run_id']}")
    ]


def interval(first: Sequence[float], second: Sequence[float]) -> str:
    """Return the mean difference of paired seeds with its 95 % interval."""
    from scipy import stats

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
    names = [FIRST_TOKENS, *FIXED, NEXT, *(name for name in TRAINED if name != FIRST_TOKENS)]
    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--weights", type=Path, default=HERE.parent / "weights" / "smollm2_135m")
    parser.add_argument("--tokens", type=int, default=1000, help="of the document")
    parser.add_argument("--questions", type=int, nargs=2, default=[30, 60], help="of dev and test")
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="beside the first")
    parser.add_argument("--set", nargs="+", default=[], help="options of every run")
    parser.add_argument("--keep", action="store_true", help="go on with the figures that are there")
    given = parser.parse_args()
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(given.weights)
    text, rows = article(given.data, tokenizer, given.tokens)
    backbone = ["backbone=smollm2_135m", f"backbone.path={given.weights}"]
    figures = given.out / "cartridges.json"
    found: dict[str, list[float]] = kept(figures, {}) if given.keep else {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        task, document = written(rows, text, folder, given.questions), folder / "document.txt"
        common = [*task, *backbone, f"readout.document=@{document}"]
        common += ["readout.max_new_tokens=16", "hardware.token_budget=4096"]
        do = partial(runs, folder / "out", given.set)
        for name in names:
            if name in found or name not in (FIRST_TOKENS, *given.only):
                continue
            if name in FIXED:
                found[name] = fixed(do, FIXED[name], common, document)
            elif name == NEXT:
                options = [*windows(text, tokenizer, folder), *backbone]
                found[name] = by_next_word(do, options, common, document)
            else:
                found[name] = trained(do, TRAINED[name], common)
            keep(figures, found)
            size = len(tokenizer(text).input_ids)
            (given.out / "cartridges.md").write_text(page(found, size), encoding="utf-8")


if __name__ == "__main__":
    main()
