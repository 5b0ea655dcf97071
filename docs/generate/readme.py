"""The parts of README.md that results files say: methods at equal trials, speed, claims.

python docs/generate/readme.py     writes them between their marks
"""

import argparse
import json
import re
from pathlib import Path
from statistics import median
from typing import Any

from text import table

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
_CPU = (
    ("minilm", "lora", "few_shot"),
    ("bert_base", "prefix", "sst2"),
    ("smollm2", "prompt", "answers"),
)
_NAMES = {
    "minilm": "MiniLM-L6",
    "bert_base": "BERT-base",
    "roberta_large": "RoBERTa-large",
    "smollm2": "SmolLM2-135M",
}
_GPU = ("bert_base", "roberta_large")  # parts of gpu.json


def fair() -> str:
    """Return the scores of methods at equal trials, a line for each task and backbone."""
    figures = _json("fair_table.json")
    lines = [
        f"At equal trials ({figures['trials']} for each method, chosen on dev; then "
        f"{figures['seeds']} fresh seeds), the mean test score and its 95 % interval:\n"
    ]
    for cell in figures["cells"].values():
        scored = [row for row in cell["rows"] if row["score"] is not None]
        rows = sorted(scored, key=lambda row: -row["score"])
        scores = (
            f"{row['method']} {row['score']:.1f} ± {row['half_interval']:.1f}" for row in rows
        )
        title = f"{rows[0]['task']} · {rows[0]['backbone']}"
        lines.append(f"- [{title}](benchmarks/results/fair_table.md): {', '.join(scores)}")
    return "\n".join(lines)


def speed() -> str:
    """Return the table of training speed beside Trainer + PEFT, on a CPU and on a GPU."""
    peers, parts = _json("peers_fp32.json"), {part["part"]: part for part in _json("gpu.json")}
    pairs = {(pair["shape"], pair["method"], pair["job"]): pair for pair in peers["pairs"]}
    rows = [_speed("CPU", pairs[key]) for key in _CPU]
    rows += [_speed("GPU", pair) for name in _GPU for pair in parts[name]["figures"]["pairs"]]
    sweep = parts["twenty_runs"]["figures"]
    ours, theirs = sweep["ours"], sweep["theirs"]
    rows.append(_row("GPU", f"BERT-base, {ours['runs']} runs", "", [(ours, theirs)], "seconds"))
    gpu = parts[_GPU[0]]
    head = ("on", "training", "tokens/s", "whole command", "seconds", "peak MiB")
    return (
        "Beside Trainer + PEFT with the same weights, rows and precision: above 1x ptrun is faster."
        "\n"
        f"CPU: {peers['threads']} threads, fp32, {peers['date']}. GPU: {gpu['card']}, bf16, "
        f"{gpu['date']}: all that was run, a few steps each,\nbefore the step was rebuilt for "
        "GPUs; `make gpu` repeats it. Seconds and MiB: ptrun's / the peer's.\n\n"
    ) + table(head, rows)


def _speed(place: str, pair: dict[str, Any]) -> list[str]:
    """Return the row of a model and a method, each pair of runs side by side."""
    runs = [*zip(pair["ours"], pair["theirs"], strict=True)]
    faster = median(our["tokens_per_second"] / their["tokens_per_second"] for our, their in runs)
    training = f"{_NAMES[pair['shape']]}, {pair['method']}"
    return _row(place, training, f"{faster:.2f}x", runs, "run_s")


def _row(place: str, training: str, faster: str, runs: list[Any], seconds: str) -> list[str]:
    ratio = median(their[seconds] / our[seconds] for our, their in runs)
    middles = [
        [median(run[key] for run in side) for side in zip(*runs, strict=True)]
        for key in (seconds, "peak_mib")
    ]
    shown = [" / ".join(f"{figure:,.0f}" for figure in middle) for middle in middles]
    return [place, training, faster, f"{ratio:.2f}x", *shown]


def claims() -> str:
    """Return how many claims of the papers hold, on real and on pocket models."""
    lines = []
    for name, what in (("claims_real", "small real models"), ("claims", "pocket models")):
        text = (RESULTS / f"{name}.md").read_text(encoding="utf-8")
        count, verdicts = re.search(r"^(\d+) claims\. (.*)\.$", text, re.MULTILINE).groups()
        verdicts = verdicts.replace("DOES NOT HOLD", "does not hold")
        lines.append(f"- [{count} claims on {what}](benchmarks/results/{name}.md): {verdicts}.")
    proof = re.search(
        r"^(\d+ of \d+ types)", (RESULTS / "model_types.md").read_text(), re.MULTILINE
    )
    lines.append(
        f"- {proof[1]} of transformers pass [the proof](benchmarks/results/model_types.md) that a "
        "prompt is read as the paper says."
    )
    return "\n".join(lines)


def _json(name: str) -> Any:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


PARTS = {"fair": fair, "speed": speed, "claims": claims}


def filled(text: str) -> str:
    """Return README.md with its parts."""
    for name, part in PARTS.items():
        marks = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        content = part()
        text = marks.sub(lambda match, c=content: f"{match[1]}{c}\n{match[2]}", text)
    return text


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    page = ROOT / "README.md"
    page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
