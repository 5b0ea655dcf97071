"""Parts of `gpu.py` that stand alone: python benchmarks/gpu_parts.py PART [--small] [--device X].

Each prints its figures as one JSON object.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
PTRUN = [sys.executable, "-m", "ptrun"]
KINDS = ("bert", "roberta", "electra", "albert", "deberta", "gpt2", "llama", "t5")
DROPOUT = ("backbone.dropout=0.1", "backbone.attention_dropout=0.1")
FP32, HALF = 1e-4, 2e-2
"""Largest difference of outputs and gradients to those in fp32 on the CPU, as a share of the
largest number. In half precision a device may have twice the CPU's own error, and HALF more."""
CHOSEN: dict[str, str] = {}
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def device(small: bool) -> str:
    """Return where a part runs: a miniature on a CPU, unless `--device` names another.

    Raises:
        SystemExit: torch finds no GPU, and the part is no miniature.
    """
    if small:
        return CHOSEN.get("device", "cpu")
    if not torch.cuda.is_available():
        sys.exit("torch finds no CUDA device; type --small for a miniature on a CPU.")
    return "cuda"


def environment(small: bool) -> dict:
    """Return versions, the device, its memory, and the peak of a bf16 product."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in ("torch", "transformers", "triton", "bitsandbytes", "peft", "deepspeed"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    if device(small) == "cuda":
        from speed import peak

        if not small:
            found["peak_bf16_tflops"] = round(peak("cuda") / 1e12, 2)
        own = torch.cuda.get_device_properties(0)
        found |= {"device": own.name, "memory_gib": round(own.total_memory / 2**30, 1)}
        found |= {"cuda": torch.version.cuda, "capability": torch.cuda.get_device_capability()}
    return found


def moved(given: Any, on: str) -> Any:
    """Return an input with all its tensors on a device."""
    if isinstance(given, torch.Tensor):
        return given.to(on)
    if not is_dataclass(given):
        return given
    return replace(given, **{f.name: moved(getattr(given, f.name), on) for f in fields(given)})


def outputs(backbone: Any, on: str) -> list[torch.Tensor]:
    """Return hidden states, logits and the gradient of raw embeddings, with dropout, on the CPU."""
    from tests.backbone.inputs import text

    given = moved(text(backbone), on)
    embedded = backbone.embed(given.ids).detach().requires_grad_(True)
    keys = torch.arange(len(embedded), device=on)
    output = backbone.forward(replace(given, ids=None, embeddings=embedded, keys=keys))
    output.hidden.float().square().sum().backward()
    tensors = (output.hidden, output.logits, embedded.grad)
    return [tensor.detach().float().cpu() for tensor in tensors]


def apart(tensors: list[torch.Tensor], exact: list[torch.Tensor]) -> float:
    """Return the largest difference, as a share of the largest number of its tensor."""
    pairs = zip(tensors, exact, strict=True)
    return max(((a - b).abs().max() / b.abs().max()).item() for a, b in pairs)


def numerics(small: bool) -> dict:
    """Return the largest difference to the CPU in fp32 of each family and precision."""
    from attention_kernel import insist

    from ptrun.backbone.pretrained import PretrainedBackbone
    from ptrun.papers.backbone import families
    from tests.conftest import write_tiny

    on, found = device(small), {}
    insist()
    with tempfile.TemporaryDirectory() as work:
        for kind in KINDS[:: 3 if small else 1]:
            folder = write_tiny(Path(work, kind), kind)
            backbone = PretrainedBackbone(families=families(), name=kind, path=str(folder))
            backbone.load()
            exact = outputs(backbone, "cpu")
            for name in ("fp32", "bf16", *(["fp16"] if kind != "t5" else [])):
                backbone.load(TYPES[name])
                own = apart(outputs(backbone, "cpu"), exact)
                allowed = FP32 if name == "fp32" else 2 * own + HALF
                backbone.load(TYPES[name], on)
                backbone.model.to(on)
                far = apart(outputs(backbone, on), exact)
                assert far <= allowed, (kind, name, far, allowed)
                found[f"{kind} {name}"] = far
    return found


def ptrun(*typed: str, outputs: str, wait: bool = True) -> subprocess.Popen:
    """Start a run of the pocket world."""
    common = ["task=pocket_sentiment", "method=ptuning_v2", "train.batch_size=16"]
    dropout = DROPOUT[:1] if "backbone=pocket_t5" in typed else DROPOUT  # it has only one kind
    line = [*PTRUN, *common, *dropout, *typed, f"outputs={outputs}"]
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if wait:
        _, error = process.communicate()
        assert process.returncode == 0, error
    return process


def result(outputs: str) -> tuple[dict, list[float]]:
    """Return the result and the losses of the only run."""
    (file,) = Path(outputs).rglob("result.json")
    rows = map(json.loads, (file.parent / "metrics.jsonl").open())
    return json.loads(file.read_text()), [row["loss"] for row in rows if row["event"] == "step"]


def hardware(small: bool) -> str:
    """Return the option of `hardware` for a part."""
    return "hardware=cpu" if device(small) == "cpu" else "hardware=gpu"


def equality(small: bool) -> dict:
    """Return the largest difference between the losses on the CPU and on the device, in fp32."""
    typed = ["hardware.precision=fp32", f"train.max_steps={5 if small else 20}"]
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        ptrun(*typed, "hardware=cpu", outputs=one)
        ptrun(*typed, hardware(small), outputs=other)
        (_, here), (_, there) = result(one), result(other)
    far = max(abs(a - b) for a, b in zip(here, there, strict=True))
    assert far <= 1e-3, far
    return {"steps": len(here), "largest_difference_of_losses": far}


_ROWS = "+task.source.rows={train: 16, validation: 8, test: 8}"
_FACT = "readout.document=Stella Barden often visits Frank Venn on Saturday with her old friends."
SHARING = (
    ("method=prompt_tuning", "readout=verbalizer", "task=pocket_sentiment"),
    ("method=lora", "task=pocket_similarity"),
    ("method=adapter", "task=pocket_topics"),
    ("method=ptuning_v2", "method.length=6", "task=pocket_writing"),
    ("method=lora", "task=pocket_writing"),
    ("method=cartridge", "method.length=9", _FACT, "task=pocket_writing"),
)
"""Runs over one frozen backbone: vectors, updates, layers, prefixes; labels, numbers and texts."""


def together(small: bool) -> dict:
    """Return how far the rows of runs that share passes are from those of each run alone."""
    from ptrun.predicting.answering import ready
    from ptrun.predicting.together import Together, together

    typed = ["backbone=pocket_gpt2", "train.max_steps=3", "train.lr=0.05", _ROWS, hardware(small)]
    own = [hardware(small), "hardware.precision=fp32"]
    with tempfile.TemporaryDirectory() as out:
        for line in SHARING[:: 2 if small else 1]:
            writes = ["readout.max_new_tokens=8"] if "task=pocket_writing" in line else []
            ptrun(*line, *typed, *writes, outputs=out)
        folders = sorted(str(file.parent) for file in Path(out).glob("runs/*/result.json"))
        shared, loaded = together([ready(folder, own) for folder in folders])
        rows = [(one, row) for one in loaded.values() for row in one.run.task.load("test")[:8]]
        rows = rows[::2] + rows[1::2]
        names = [(one.id, row.id) for one, row in rows]
        found = dict(zip(names, shared.predict(rows), strict=True))
        far, equal = 0.0, 0
        for folder in folders:
            alone = Together(ready(folder, own))
            asked = [row for one, row in rows if one.id == alone.first.id]
            for answer in alone.predict([(alone.first, row) for row in asked]):
                other = found[alone.first.id, answer.id]
                for label, share in (answer.probabilities or {}).items():
                    far = max(far, abs(share - (other.probabilities or {})[label]))
                equal += close(answer.value, other.value)
    assert far <= 1e-5 and equal == len(rows), (far, equal, len(rows))
    return {"runs": len(folders), "rows": len(rows), "largest_difference_of_probabilities": far}


def close(one: Any, other: Any) -> bool:
    """Return whether two answers are equal, numbers to 1e-5."""
    return abs(one - other) <= 1e-5 if isinstance(one, float) else bool(one == other)


def resume(small: bool) -> dict:
    """Kill a run after a save, resume it, and compare its prompt with that of a run left alone."""
    steps = 20 if small else 100
    typed = [hardware(small), f"train.max_steps={steps}", "train.eval_every=5"]
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        ptrun(*typed, outputs=one)
        process = ptrun(*typed, outputs=other, wait=False)
        while process.poll() is None and not list(Path(other).rglob("state.safetensors")):
            time.sleep(0.01)
        process.kill()
        process.wait()
        killed = not list(Path(other).rglob("result.json"))
        ptrun(*typed, outputs=other)
        (first, _), (second, losses) = result(one), result(other)
    assert first["manifest"]["prompt"] == second["manifest"]["prompt"] and len(losses) == steps
    return {"killed_before_the_end": killed, "steps": steps, "prompt": first["manifest"]["prompt"]}


def transfers(small: bool) -> dict:
    """Return how often the host waits for the device in a step, by the name of the call.

    Two runs differ in steps alone, so that loading, evaluating and saving do not count.
    """
    device(small)
    few, more = (5, 10) if small else (20, 60)
    short, long = called(few, small), called(more, small)
    return {"steps": more - few, **{n: (long[n] - short[n]) / (more - few) for n in WAITS}}


WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaMemcpyAsync", "aten::item")


def called(steps: int, small: bool) -> Counter[str]:
    """Return how often a run with one evaluation calls what makes the host wait."""
    from torch.profiler import ProfilerActivity, profile

    from ptrun.config.compose import compose_run
    from ptrun.runs import recipe
    from ptrun.runs.plan import plan

    with tempfile.TemporaryDirectory() as out:
        typed = ["task=pocket_sentiment", *DROPOUT, hardware(small), f"train.max_steps={steps}"]
        planned = plan(compose_run([*typed, f"train.eval_every={steps}", f"outputs={out}"]))
        kinds = [ProfilerActivity.CPU, *([] if small else [ProfilerActivity.CUDA])]
        with profile(activities=kinds) as seen:
            recipe.run(planned)
    return Counter({e.key: e.count for e in seen.key_averages() if e.key in WAITS})


def two_ranks(small: bool) -> dict:
    """Return how far two ranks are from one, by rows (ZeRO-1) and by model, in fp32."""
    on, found = device(small), {}
    if on == "cuda" and torch.cuda.device_count() < 2:
        return {"skipped": "one GPU is here; two ranks need two"}
    steps = [f"train.max_steps={4 if small else 20}", "hardware.precision=fp32"]
    for name, typed in {
        "rows": ["hardware=zero1", "hardware.ranks=2"],
        "model": ["hardware=zero1", "hardware.ranks=2", "hardware.model_parallel=2"],
    }.items():
        own = [*steps, *(["backbone=pocket_t5"] if name == "model" else [])]
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
            ptrun(*own, hardware(small), outputs=one)
            ptrun(*own, *typed, f"hardware.device={on}", outputs=other)
            (_, here), (_, there) = result(one), result(other)
        far = max(abs(a - b) for a, b in zip(here, there, strict=True))
        assert far <= 1e-3, (name, far)
        found[name] = far
    return found


PARTS = {
    "environment": environment,
    "numerics": numerics,
    "equality": equality,
    "together": together,
    "resume": resume,
    "transfers": transfers,
    "two_ranks": two_ranks,
}


def main() -> None:
    """Do a part and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--small", action="store_true", help="a miniature, on a CPU")
    parser.add_argument("--device", choices=["cpu", "cuda"], help="where a miniature runs")
    given = parser.parse_args()
    CHOSEN.update({"device": given.device} if given.device else {})
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    print(json.dumps(PARTS[given.part](given.small)))


if __name__ == "__main__":
    main()
