"""Compare the memory that `ptrun plan` computes with measured peaks, and publish each error.

    python benchmarks/plan_memory.py [WORD ...] [--length N]     cases whose names have all words
    python benchmarks/plan_memory.py --computed    only compute; what was measured stays

Models have public shapes and random weights, in a temporary folder. A new process trains each case
for a few steps on a CPU. Its peak resident memory (VmHWM) while training counts from the memory
after the imports, before the weights load. The peak while loading is recorded too. It includes
pages of the files, which Linux can reclaim. GPU cases were recorded once: the peak of torch's
allocator, without the driver. An error may be 20 %. Writes results/plan_memory.{json,md}.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from typing import Any

from running import arguments, keep, kept

BERT = {
    "model_type": "bert",
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "vocab_size": 28996,
}
T5 = {
    "model_type": "t5",
    "d_model": 768,
    "d_kv": 64,
    "d_ff": 2048,
    "num_layers": 8,
    "num_decoder_layers": 8,
    "num_heads": 12,
    "vocab_size": 32128,
    "feed_forward_proj": "gated-gelu",
    "tie_word_embeddings": False,
    "decoder_start_token_id": 0,
}
MINILM = {
    **BERT,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "intermediate_size": 1536,
}
GPT2 = {
    "model_type": "gpt2",
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "vocab_size": 50257,
}
SHARED = ["task=pocket_sentiment", "train.max_steps=3", "hardware.precision=fp32"]
CASES = {
    "bert_base, prompt tuning of 100 vectors, frozen": (
        BERT,
        128,
        ["method=prompt_tuning", "method.length=100", "train.batch_size=16"],
    ),
    "T5 of 190M, P-tuning v2 of 20 vectors, frozen": (
        T5,
        160,
        ["method=ptuning_v2", "train.batch_size=16", "hardware.token_budget=1280"],
    ),
    "bert_base, full tuning": (
        BERT,
        128,
        ["method=fine_tuning", "train.batch_size=16", "hardware.token_budget=1024"],
    ),
    "bert_base, full tuning by ZeRO-1 in bf16": (
        BERT,
        128,
        [
            "hardware=zero1",
            "hardware.device=cpu",
            "hardware.precision=bf16",
            "method=fine_tuning",
            "train.batch_size=16",
            "hardware.token_budget=1024",
        ],
    ),
    "T5 of 190M, prompt tuning of 100 vectors, recomputing": (
        T5,
        160,
        [
            "method=prompt_tuning",
            "method.length=100",
            "train.batch_size=8",
            "hardware.checkpointing=true",
        ],
    ),
    "MiniLM, P-tuning v2 of 20 vectors, texts of 480 tokens": (
        MINILM,
        480,
        ["method=ptuning_v2", "method.length=20", "train.batch_size=16"],
    ),
    "MiniLM, a population of prefixes of 100 vectors": (
        MINILM,
        128,
        ["method=ptuning_v2", "method.length=100", "train.batch_size=16"],
    ),
    "GPT-2, P-tuning v2 of 20 vectors, held out": (
        GPT2,
        160,
        ["method=ptuning_v2", "method.length=20", "train.batch_size=16"],
    ),
    "bert_base, LoRA, texts of 256 tokens, held out": (
        BERT,
        256,
        ["method=lora", "train.batch_size=16"],
    ),
    "MiniLM, full tuning, texts of 256 tokens, held out": (
        MINILM,
        256,
        ["method=fine_tuning", "train.batch_size=16"],
    ),
}
"""Those held out came after the formula; the others decided the share of activations on a CPU."""
MEMBERS = {"MiniLM, a population of prefixes of 100 vectors": 16}
"""Runs that share passes; the other cases have one."""
WRITE = """
import json, sys, torch
from pathlib import Path
from ptrun.backbone.pretrained import PretrainedBackbone
content, folder = json.loads(sys.argv[1]), Path(sys.argv[2])
model = PretrainedBackbone(name="x", config=content).model.to_empty(device="cpu")
for tensor in [*model.parameters(), *model.buffers()]:
    tensor.data.normal_(std=0.02) if tensor.is_floating_point() else tensor.data.zero_()
model.save_pretrained(folder)
(folder / "config.json").write_text(json.dumps(content))
"""
MEASURE = """
import json, sys, time
from ptrun.hardware.environment import prepare
prepare()
import torch, transformers
from ptrun.config.compose import compose_run
from ptrun.planning.overview import StepClock
from ptrun.readout.base import Features, TokenRow
from ptrun.runs.plan import plan
from ptrun.training.member import Member

def held(what):
    lines = open("/proc/self/status").read().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(what))

length, own = int(sys.argv[1]), compose_run(sys.argv[3:])
planned = plan(own)
planned.backbone.model
if planned.hardware.divides:
    import deepspeed
count = int(sys.argv[2])
methods = [planned.method.build(planned.backbone, planned.task) for _ in range(count)]
method = methods[0]
bare = held("VmRSS")
engine = planned.engine
engine.connect()
engine.load(tuned=method.tunes_backbone)
engine.place(methods)
loaded = held("VmHWM") - bare
open("/proc/self/clear_refs", "w").write("5")  # resets VmHWM: the peak of loading is recorded apart
decoder = [0] if planned.backbone.family == "seq2seq" else None
row = TokenRow([5] * length, None, [0], [], decoder)
rows = [Features(str(i), [row], [i % 2]) for i in range(64)]
score = lambda answers: {planned.task.metric: 0.0}
clock = StepClock()
given = rows, rows[:1], score, planned.task.metric, planned.train, 1
members = [Member(own, *given, clock if own is method else StepClock()) for own in methods]
engine.fit(members)
assert not any(member.failed for member in members), [member.failed for member in members]
weights = sum(p.numel() * p.element_size() for p in planned.backbone.model.parameters())
steps = [round(b - a, 1) for a, b in zip(clock.steps, clock.steps[1:])]
found = {"weights": weights, "loaded": loaded, "peak": held("VmHWM") - bare, "seconds": steps}
print(json.dumps(found))
"""
XXL = "T5-XXL, prompt tuning of 100 vectors, recomputing, "
GPU = {
    XXL + kind: ["method.length=100", "train.batch_size=16", f"hardware.quantization={typed}"]
    for kind, typed in (("bf16", "none"), ("int8", "int8"), ("nf4", "nf4"))
}
"""Recorded on an H100 with one text of at most 156 tokens a micro-batch."""
_PAGE = """\
# The error of planned memory

`benchmarks/plan_memory.py` compares the formula of `ptrun plan` with measured peaks, in MiB. On a
CPU that is a process's resident memory without its imports, on a GPU the most that torch allocated,
without the driver. `before` is the error of a former estimate, which counted blocks of the heap.
The share of activations on a CPU was chosen on the cases before the held-out ones.

| case | measured on | measured | formula | error | before |
|---|---|---|---|---|---|
{rows}

Absolute errors: {error}; before, {before}.
"""


def computed(name: str, length: int | None = None) -> dict[str, int]:
    """Return the bytes that the formula gives for a case; no weights are needed."""
    from ptrun.config.compose import compose_run
    from ptrun.planning.costs import Costs, Texts, planned_on
    from ptrun.planning.memory import layout_of

    if name in GPU:
        typed = ["backbone=t5_v1_1_xxl", "method=prompt_tuning", "task=pocket_sentiment"]
        more = ["hardware=gpu", "hardware.checkpointing=true", "hardware.token_budget=156"]
        composed, size = compose_run([*typed, *more, *GPU[name]]), 156
    else:
        content, size, overrides = CASES[name]
        presets = {"t5": "t5_v1_1_base", "gpt2": "gpt2"}
        preset = presets.get(str(content["model_type"]), "bert_base_cased")
        composed = compose_run([*SHARED, *overrides, f"backbone={preset}"])
        node = {**composed.config["backbone"], "config": content, "parameters": None}
        composed = replace(composed, config={**composed.config, "backbone": node})
    layout, size = layout_of(composed, elsewhere=name in GPU), length or size
    costs = Costs(planned_on(composed, layout), Texts(size, "", size))
    memory, members = costs.memory(layout), (MEMBERS.get(name, 1) - 1) * costs.sizes.member
    peak = memory.peak + members - memory.libraries * (name in GPU)
    parts: dict[str, Any] = {**memory._asdict(), "members": members, "peak": peak}
    return {key: round(size / 2**20) for key, size in parts.items()}


def python(code: str, *arguments: str) -> str:
    """Return the last line of a new process's output."""
    command = [sys.executable, "-c", code, *arguments]
    env = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=env)
    return done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""


def measured(name: str, length: int | None) -> dict[str, Any]:
    """Return the measured figures of a case, in MiB."""
    content, size, overrides = CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        python(WRITE, json.dumps(content), folder)
        typed = [*SHARED, *overrides, f"backbone.path={folder}", f"outputs={folder}/outputs"]
        line = (str(length or size), str(MEMBERS.get(name, 1)), *typed)
        figures = json.loads(python(MEASURE, *line))
    return {
        "on": "CPU",
        "measured": round(figures["peak"] / 2**20),
        "measured_while_loading": round(figures["loaded"] / 2**20),
        "seconds_a_step": figures["seconds"],
    }


def page(cases: dict[str, dict[str, Any]]) -> str:
    """Return the table of all cases and their errors."""
    rows = (
        f"| {name} | {case['on']} | {case['measured']:,} | {case['computed']['peak']:,} | "
        f"{case['error']:+.1%} | {format(case['before'], '+.1%') if 'before' in case else '-'} |"
        for name, case in cases.items()
    )
    said = {}
    for key in ("error", "before"):
        errors = [100 * abs(case[key]) for case in cases.values() if key in case] or [math.nan]
        said[key] = f"{sum(errors) / len(errors):.1f} % on average, {max(errors):.1f} % at most"
    return _PAGE.format(rows="\n".join(rows), **said)


def main() -> None:
    """Measure, compute, save and print."""
    parser = arguments(__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--length", type=int, help="tokens of a text, in place of a case's own")
    parser.add_argument("--computed", action="store_true", help="measure nothing")
    typed = parser.parse_args()
    file = typed.out / "plan_memory.json"
    figures = kept(file, {"unit": "MiB", "cases": {}})
    cases = figures["cases"]
    for name in CASES if not typed.computed else ():
        if all(word in name for word in typed.words):
            cases[name] = {**cases.get(name, {}), **measured(name, typed.length)}
    for name, case in cases.items():
        case["computed"] = computed(name, typed.length)
        case["error"] = round(case["computed"]["peak"] / case["measured"] - 1, 3)
    keep(file, figures)
    file.with_suffix(".md").write_text(page(cases), encoding="utf-8")
    print(page(cases))


if __name__ == "__main__":
    main()
