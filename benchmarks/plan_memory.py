"""Compare predicted and measured peak memory of training on a CPU.

    python benchmarks/plan_memory.py [WORD ...] [--length N]     cases whose names have all words

Models have public shapes and random weights, in a temporary folder. A new process trains each case
for a few steps. Its peak resident memory (VmHWM) while training counts from the memory after the
imports, before the weights load. The peak while loading is recorded too. It includes pages of the
files, which Linux can reclaim. The prediction is that of `ptrun plan`, from sizes only. Its mean
error may be 20 %. Writes results/plan_memory.json, with the errors of a former, traced prediction.
"""

import json
import os
import subprocess
import sys
import tempfile

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
}
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
PREDICT = """
import json, sys
from ptrun.planning.costs import Costs, Texts, planned_on
from ptrun.config.compose import compose_run
from ptrun.planning.memory import layout_of
length, count, own = int(sys.argv[1]), int(sys.argv[2]), compose_run(sys.argv[3:])
layout = layout_of(own)
made = Costs(planned_on(own, layout), Texts(length, "", length))
found, more = made.memory(layout), (count - 1) * made.sizes.member
print(json.dumps({**vars(found), "members": more, "peak": found.peak + more}))
"""


def python(code: str, *arguments: str) -> str:
    """Return the last line of a new process's output."""
    command = [sys.executable, "-c", code, *arguments]
    env = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=env)
    return done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""


def case(
    members: int, content: dict[str, object], length: int, overrides: list[str]
) -> dict[str, object]:
    """Return one case's figures, in MiB."""
    with tempfile.TemporaryDirectory() as folder:
        python(WRITE, json.dumps(content), folder)
        own = [*SHARED, *overrides, f"backbone.path={folder}", f"outputs={folder}/outputs"]
        measured = json.loads(python(MEASURE, str(length), str(members), *own))
        predicted = json.loads(python(PREDICT, str(length), str(members), *own))
    return {
        "measured": round(measured["peak"] / 2**20),
        "measured_while_loading": round(measured["loaded"] / 2**20),
        "predicted": round(predicted["peak"] / 2**20),
        "off": round(predicted["peak"] / measured["peak"] - 1, 3),
        "of_it": {key: round(value / 2**20) for key, value in predicted.items()},
        "seconds_a_step": measured["seconds"],
    }


def main() -> None:
    """Measure, save and print."""
    parser = arguments(__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--length", type=int, help="tokens of a text, in place of a case's own")
    given = parser.parse_args()
    file = given.out / "plan_memory.json"
    figures = kept(file, {"unit": "MiB", "cases": {}})
    for name, (content, length, overrides) in CASES.items():
        if all(word in name for word in given.words):
            run = content, given.length or length, overrides
            figures["cases"][name] = case(MEMBERS.get(name, 1), *run)
    keep(file, figures)
    print(json.dumps(figures["cases"], indent=1))


if __name__ == "__main__":
    main()
