"""The parts of README.md that results files say: speed, which GPU, claims.

python docs/generate/readme.py     writes them between their marks
"""

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from text import table

from ptrun.config.compose import compose_run
from ptrun.planning.cards import CARDS, Change, Changes
from ptrun.planning.costs import Costs, planned_on, texts
from ptrun.planning.memory import GIB, card, layout_of

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
_PLANNED = (
    ("1B", "llama3_2_1b", "prompt_tuning"),
    ("8B", "llama3_1_8b", "prompt_tuning"),
    ("11B", "t5_xxl_lm_adapt", "prompt_tuning"),
)
_LEFT_OUT = 48  # GiB, so that the table is narrow
_GPU = ("bert_base", "roberta_large")  # parts of gpu.json


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


def cards() -> str:
    """Return which GPU is enough for models of three sizes, as `ptrun plan` counts."""
    sizes = [size for size in CARDS if size != _LEFT_OUT]
    rows = []
    for name, backbone, method in _PLANNED:
        changes = least([f"backbone={backbone}", f"method={method}"])
        cells = [_change(changes[size]) for size in sizes]
        rows.append([f"{name} (`{backbone}`), {method}", *cells])
    return (
        "Peak GiB of a step of 32 texts of 256 tokens, and what to type (each key begins with "
        "`hardware.`).\nComputed by `ptrun plan`, not measured on these cards.\n\n"
    ) + table(("model, method", *(f"{size} GiB" for size in sizes)), rows)


def least(overrides: Sequence[str]) -> dict[int, Change | None]:
    """Return the least change with which a run on one GPU fits, for each size of `CARDS` in GiB.

    None does not fit. Weights stay dense if they can, else they are held in 8 or in 4 bits.
    """
    composed = compose_run(overrides)
    planned = planned_on(composed, layout_of(composed))
    changes = Changes(Costs(planned, texts(planned, None)), overrides, elsewhere=True)
    forms = {size: (c for form in changes.forms(card(size).most) for c in form) for size in CARDS}
    return {size: next(ways, None) for size, ways in forms.items()}


def _change(change: Change | None) -> str:
    """Return a change in short, and the peak with it."""
    if change is None:
        return "no"
    return f"{change.peak / GIB:.0f} {change.typed.replace('hardware.', '')}".strip()


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


PARTS = {"speed": speed, "cards": cards, "claims": claims}


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
