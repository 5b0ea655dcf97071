"""Compare a run of method=cartridge with PEFT's CARTRIDGE trained as its example does it.

    make weights && python benchmarks/distilling.py --data DIR [--weights weights/smollm2_135m]

Both sides read the same rows of a SQuAD article once, 4 a step, learn from all of their tokens and
from the 20 likeliest tokens of the teacher, and have the same weights, in fp32. PEFT's side holds
the teacher as a model of its own that reads the document before every row, with the logits of all
tokens, as its example does. Times are from command to end, with the teacher's. Writes
results/distilling.md.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from cartridges import article
from running import HERE, RESULTS, ptrun, results

LENGTH, BATCH, STEPS, KEPT, RATE = 64, 4, 12, 20, 0.005
FORM = "Question: {question} Answer:"


def peer(told: dict[str, Any]) -> None:
    """Train PEFT's CARTRIDGE, and print the peak of the process in MiB."""
    import torch
    from peft import CartridgeConfig, get_peft_model, initialize_kv_prefix_from_text
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(1)
    tokenizer = AutoTokenizer.from_pretrained(told["model"])
    load = lambda: AutoModelForCausalLM.from_pretrained(told["model"], dtype=torch.float32)  # noqa: E731
    teacher, config = load().eval(), CartridgeConfig(
        task_type="CAUSAL_LM", num_virtual_tokens=LENGTH, num_frozen_tokens=1
    )  # fmt: skip
    student = get_peft_model(load(), config)
    initialize_kv_prefix_from_text(student, tokenizer, text=told["text"])
    optimizer = torch.optim.AdamW([p for p in student.parameters() if p.requires_grad], lr=RATE)
    context, end = tokenizer(told["text"]).input_ids, tokenizer.eos_token_id
    rows = [[*tokenizer(f"{q} {a}").input_ids, end] for q, a in told["rows"]]
    for start in range(0, len(rows), BATCH):
        some = rows[start : start + BATCH]
        own, mask = padded(some, end)
        whole, seen = padded([context + ids for ids in some], end)
        with torch.no_grad():
            taught = teacher(input_ids=whole, attention_mask=seen, use_cache=False).logits
        read = student(input_ids=own, attention_mask=mask, use_cache=False).logits
        losses = []
        for i, ids in enumerate(some):
            wanted = taught[i, len(context) : len(context) + len(ids) - 1].log_softmax(-1)
            best = wanted.topk(KEPT)
            found = read[i, : len(ids) - 1].log_softmax(-1).gather(-1, best.indices)
            losses.append(-(best.values.exp() * found).sum(-1).mean())
        torch.stack(losses).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    lines = Path("/proc/self/status").read_text().splitlines()
    print(next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM")))


def padded(rows: list[list[int]], end: int) -> tuple[Any, Any]:
    """Return ids and mask of rows, padded on the right."""
    import torch

    width = max(map(len, rows))
    ids = [row + [end] * (width - len(row)) for row in rows]
    mask = [[1] * len(row) + [0] * (width - len(row)) for row in rows]
    return torch.tensor(ids), torch.tensor(mask)


def theirs(told: dict[str, Any], folder: Path) -> dict[str, float]:
    """Return the seconds and the peak of PEFT's side."""
    file = folder / "told.json"
    file.write_text(json.dumps(told))
    line, began = [sys.executable, __file__, "--peer", str(file)], time.time()
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return {"seconds": time.time() - began, "peak": float(done.stdout.split()[-1])}


def ours(told: dict[str, Any], folder: Path) -> dict[str, float]:
    """Return the seconds and the peak of a run; two rows are its dev and test."""
    (folder / "document.txt").write_text(told["text"], encoding="utf-8")
    keys = ("question", "answer")
    rows = [json.dumps(dict(zip(keys, row, strict=True))) + "\n" for row in told["rows"]]
    parts = {"train": rows, "dev": rows[:1], "test": rows[:1]}
    for part, own in parts.items():
        (folder / f"{part}.jsonl").write_text("".join(own), encoding="utf-8")
    began = time.time()
    with tempfile.TemporaryDirectory() as out:
        ptrun(
            *("method=cartridge", f"method.length={LENGTH}", "readout.loss_on=all"),
            *(f"readout.document=@{folder / 'document.txt'}", "readout.max_new_tokens=32"),
            *("task=csv", "task.text=question", "task.answer=answer", "protocol=paper"),
            *(f"task.{part}={folder / f'{part}.jsonl'}" for part in parts),
            *("backbone=smollm2_135m", f"backbone.path={told['model']}", f"outputs={out}"),
            *(f"train.max_steps={STEPS}", f"train.batch_size={BATCH}", f"train.lr={RATE}"),
            f"train.eval_every={STEPS}",
        )
        (done,) = results(Path(out))
    return {"seconds": time.time() - began, "peak": done["manifest"]["peak_memory_mib"]}


def page(pairs: list[tuple[dict[str, float], dict[str, float]]], tokens: int, read: int) -> str:
    """Return the medians and their ratios."""
    lines = [
        "# A cartridge beside PEFT's example", "",
        f"SmolLM2-135M, a document of {tokens} tokens, {LENGTH} vectors, {STEPS} steps of {BATCH} "
        f"rows that are read once, {len(pairs)} pairs in turns, fp32 on a CPU. Tokens are those of "
        "the rows; times are of the whole command. `python benchmarks/distilling.py`", "",
        "| | ptrun | PEFT's example | ratio of the pairs |", "|---|---|---|---|",
    ]  # fmt: skip
    rates = [[read / own["seconds"] for own in pair] for pair in pairs]
    peaks = [[own["peak"] for own in pair] for pair in pairs]
    for name, own, better in (("tokens/s", rates, 0), ("peak, MiB", peaks, 1)):
        ratio = [pair[better] / pair[1 - better] for pair in own]
        middle = [median(pair[side] for pair in own) for side in (0, 1)]
        lines.append(
            f"| {name} | {middle[0]:,.0f} | {middle[1]:,.0f} | {median(ratio):.2f} "
            f"({min(ratio):.2f} to {max(ratio):.2f}) |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure pairs, and write the page."""
    from transformers import AutoTokenizer

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--weights", type=Path, default=HERE.parent / "weights" / "smollm2_135m")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peer", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.peer:
        return peer(json.loads(given.peer.read_text()))
    tokenizer = AutoTokenizer.from_pretrained(given.weights)
    text, found = article(given.data, tokenizer)
    own = list({row["question"]: row for row in found}.values())
    random.Random(0).shuffle(own)
    rows = [[FORM.format(**row), row["answers"]["text"][0]] for row in own[: STEPS * BATCH]]
    told = {"model": str(given.weights.resolve()), "text": text, "rows": rows}
    read = sum(len(tokenizer(" ".join(row)).input_ids) + 1 for row in rows)
    with tempfile.TemporaryDirectory() as folder:
        pairs = [
            (ours(told, Path(folder)), theirs(told, Path(folder))) for _ in range(given.repeats)
        ]
    written = page(pairs, len(tokenizer(text).input_ids), read)
    (RESULTS / "distilling.md").write_text(written, encoding="utf-8")
    print(written)
    return None


if __name__ == "__main__":
    main()
