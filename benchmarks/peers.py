"""Compare a run of ptrun with the same run of HF Trainer and PEFT: speed, memory and start.

    python benchmarks/peers.py --minilm FOLDER --data DIR --tokenizer FOLDER [--repeats 3]
        [--shapes minilm,bert_base,roberta_large] [--methods prefix,prompt,lora,full]
        [--precision fp32] [--jobs sst2,few_shot] [--keep]
    python benchmarks/peers.py --smollm2 FOLDER --data DIR --shapes smollm2 --jobs answers,all
    python benchmarks/peers.py --device cuda --precision bf16 --shapes bert_base --methods prefix

Both sides have the same weights, rows, order, batch size, steps, evaluations and precision. Each
pair runs one after the other, in turns, and the ratio is theirs / ours of each pair. MiniLM and
SmolLM2 have real weights; BERT-base and RoBERTa-large are shapes with random weights. DIR has
glue_sst2/train.jsonl[.gz], and squad/validation for `answers` and `all`: SmolLM2 writes, and learns
from the answer's tokens or from all. FOLDER has a tokenizer with BERT's vocabulary. Without them
the opinions and the tokenizer of the pocket world are used. Writes
results/peers_PRECISION.{json,md,svg}.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path

from peers_page import ratios, spread, write_page
from running import HERE, PTRUN, arguments, keep, kept, lines, results

from ptrun.backbone.dropout import RULE

POCKET = HERE.parent / "ptrun" / "pocket" / "models" / "pocket_bert"
LENGTH = 20
METHODS = {
    "prefix": ("ptuning_v2", 1e-2, [f"method.length={LENGTH}"]),
    "prompt": ("prompt_tuning", 1e-2, [f"method.length={LENGTH}"]),
    "lora": ("lora", 1e-3, []),
    "full": ("fine_tuning", 5e-5, []),
}
SHAPES = {
    "tiny": (2, 64, 2, 128),
    "minilm": (6, 384, 12, 1536),
    "bert_base": (12, 768, 12, 3072),
    "roberta_large": (24, 1024, 16, 4096),
    "smollm2": (30, 576, 9, 1536),
}
STEPS = {"tiny": 8, "minilm": 48, "bert_base": 16, "roberta_large": 8, "smollm2": 8}


@dataclass
class Job:
    """A batch size with its training rows and steps; `loss_on` if the answer is a text."""

    name: str
    batch: int
    rows: int
    steps: int
    dev: int = 200
    loss_on: str | None = None


@dataclass
class Pairs:
    """The measured pairs of one case; entry i of both lists ran one after the other.

    `weights` counts those of the layers' linear maps; `masks` is the rule of our dropout.
    """

    shape: str
    method: str
    job: str
    precision: str
    weights: int
    peak_gflops: list[float] = field(default_factory=list)
    ours: list[dict] = field(default_factory=list)
    theirs: list[dict] = field(default_factory=list)
    masks: int = RULE


def peak(precision: str, device: str) -> float:
    """Return the matrix products of a device, in GFLOP/s, measured now."""
    size = 8192 if device == "cuda" else 1536
    code = f"""if True:
    import time, torch
    torch.set_num_threads({os.cpu_count()})
    kind = torch.{"bfloat16" if precision == "bf16" else "float32"}
    a, b = (torch.randn({size}, {size}).to("{device}", kind) for _ in range(2))
    best = 9e9
    for _ in range(8):
        began = time.perf_counter(); (a @ b)[0, 0].item()
        best = min(best, time.perf_counter() - began)
    print(2 * {size} ** 3 / best / 1e9)"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return float(done.stdout)


def model_folder(shape: str, asked: argparse.Namespace, into: Path) -> Path:
    """Return the folder of a model; shapes get random weights."""
    if folder := vars(asked).get(shape):
        return folder
    import torch
    from transformers import BertConfig, BertModel

    layers, hidden, heads, wide = SHAPES[shape]
    torch.manual_seed(0)
    config = BertConfig(
        num_hidden_layers=layers, hidden_size=hidden, num_attention_heads=heads,
        intermediate_size=wide,
    )  # fmt: skip
    folder = into / shape
    BertModel(config).save_pretrained(folder)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(asked.tokenizer / file, folder)
    return folder


def weights(shape: str) -> int:
    """Return the number of weights of the layers' linear maps."""
    layers, hidden, heads, wide = SHAPES[shape]
    if shape == "smollm2":  # three heads of keys, and a gate
        return layers * (2 * hidden**2 + 6 * hidden * hidden // heads + 3 * hidden * wide)
    return layers * (4 * hidden**2 + 2 * hidden * wide)


def write_rows(data: Path | None, job: Job, into: Path) -> dict[str, str]:
    """Write train, dev and test; the rows are shuffled once, so the file's order is random."""
    import random

    if job.loss_on and data is None:
        sys.exit("squad/validation is read from --data DIR.")
    if job.loss_on:
        rows = [
            {"prompt": f"{row['context']} {row['question']}", "answer": row["answers"]["text"][0]}
            for row in lines(data, "squad/validation")
            if len(row["context"]) < 800  # no row is cut on either side
        ]
    elif data is None:
        from ptrun.pocket.tasks import rows as pocket

        rows = [
            {**row, "label": row["label"] == "positive"}
            for row in pocket("pocket_sentiment", "train")
        ]
    else:
        rows = lines(data, "glue_sst2/train")
    random.Random(0).shuffle(rows)
    if not job.loss_on:
        rows = [{"text": row["sentence"], "label": int(row["label"])} for row in rows]
    dev = job.dev
    parts = {"train": rows[2 * dev :][: job.rows], "dev": rows[:dev], "test": rows[dev : 2 * dev]}
    written = {}
    for name, part in parts.items():
        file = into / f"{job.name}_{name}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in part))
        written[name] = str(file)
    return written


def in_order(files: dict[str, str], job: Job, into: Path) -> str:
    """Write the training rows in the order in which ptrun reads them, and return the file."""
    from ptrun.training.member import shuffled

    rows = Path(files["train"]).read_text().splitlines(keepends=True)
    epochs = -(-job.steps * job.batch // len(rows))
    order = [index for e in range(epochs) for index in shuffled(len(rows), 1, e).tolist()]
    file = into / f"{job.name}_ordered.jsonl"
    file.write_text("".join(rows[index] for index in order))
    return str(file)


def case_of(model: Path, method: str, job: Job, precision: str, device: str) -> dict:
    """Return what both sides are told."""
    told = {"model": str(model), "method": method, "length": LENGTH, "batch": job.batch}
    told |= {"steps": job.steps, "eval_every": job.steps // 4, "threads": os.cpu_count()}
    told |= {"loss_on": job.loss_on}
    return told | {"precision": precision, "device": device}


def typed(case: dict, files: dict[str, str], out: str) -> list[str]:
    """Return what is typed for a case, without the rate and the seed."""
    name, _, options = METHODS[case["method"]]
    reads = ["task.text=text", "task.label=label"]
    if case["loss_on"]:
        reads = ["task.text=prompt", "task.answer=answer", "readout=writing"]
        reads += [f"readout.loss_on={case['loss_on']}", "readout.max_new_tokens=32"]
    return [
        *(f"method={name}", *options, "task=csv", *reads),
        *(f"task.{part}={file}" for part, file in files.items()),
        *(f"backbone.path={case['model']}", f"outputs={out}", f"train.batch_size={case['batch']}"),
        *(f"train.max_steps={case['steps']}", f"train.eval_every={case['eval_every']}"),
        f"hardware={'gpu' if case['device'] == 'cuda' else 'cpu'}",
        f"hardware.precision={case['precision']}",
    ]


def ours(case: dict, files: dict[str, str], extra: list[str]) -> dict:
    """Run ptrun and return what was measured."""
    with tempfile.TemporaryDirectory() as out:
        rate = f"train.lr={METHODS[case['method']][1]}"
        command = [*PTRUN, *typed(case, files, out), rate, *extra]
        began = time.time()
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        first = _first_step(Path(out), process)
        _, errors = process.communicate()
        ended = time.time()
        if process.returncode:
            sys.exit(f"{' '.join(command)}\n{errors}")
        (done,) = results(Path(out))
    return {
        "first_step_s": first - began,
        "run_s": ended - began,
        "tokens_per_second": done["manifest"]["tokens_per_second"],
        "peak_mib": done["manifest"]["peak_memory_mib"],
        "accuracy": done["metrics"]["test"].get("accuracy"),
    }


def _first_step(out: Path, process: subprocess.Popen) -> float:
    """Return when the first step was written."""
    while process.poll() is None:
        files = list(out.glob("runs/*/metrics.jsonl"))
        if files and '"step"' in files[0].read_text():
            return time.time()
        time.sleep(0.02)
    return time.time()


def theirs(case: dict, ordered: str, files: dict[str, str]) -> dict:
    """Run HF Trainer and PEFT and return what was measured."""
    runs, began = [{"seed": 1, "lr": METHODS[case["method"]][1]}], time.time()
    (measured,), seconds = trained(case, ordered, files, runs)
    first = measured.pop("first_step_at") - began
    return {"first_step_s": first, "run_s": seconds, **measured}


def trained(
    case: dict, ordered: str, files: dict[str, str], runs: list[dict]
) -> tuple[list[dict], float]:
    """Do runs of HF Trainer and PEFT in a process; return what each measured, and all seconds."""
    with tempfile.TemporaryDirectory() as out:
        file, told = Path(out) / "case.json", {**case, "train": ordered, "dev": files["dev"]}
        file.write_text(json.dumps({**told, "runs": runs, "out": out}))
        code = (
            f"import sys; sys.path.insert(0, {str(HERE)!r}); import peer_trainer as own; own.main()"
        )
        line, began = [sys.executable, "-c", code, str(file)], time.time()
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        seconds = time.time() - began
    if done.returncode:
        sys.exit(done.stderr)
    return [json.loads(own) for own in done.stdout.splitlines() if own.startswith('{"')], seconds


def measure(arguments: argparse.Namespace) -> list[Pairs]:
    """Return all pairs."""
    found = []
    with tempfile.TemporaryDirectory() as kept:
        for shape in arguments.shapes.split(","):
            model = model_folder(shape, arguments, Path(kept))
            for job in _jobs(arguments.jobs, shape):
                files = write_rows(arguments.data, job, Path(kept))
                ordered = in_order(files, job, Path(kept))
                for method in arguments.methods.split(","):
                    pairs = Pairs(shape, method, job.name, arguments.precision, weights(shape))
                    case = case_of(model, method, job, arguments.precision, arguments.device)
                    for _ in range(arguments.repeats):
                        pairs.peak_gflops.append(peak(arguments.precision, arguments.device))
                        pairs.ours.append(ours(case, files, arguments.set))
                        pairs.theirs.append(theirs(case, ordered, files))
                    found.append(pairs)
                    print(line(pairs), flush=True)
    return found


def _jobs(names: str, shape: str) -> list[Job]:
    every = {
        "sst2": Job("sst2", 32, 2000, STEPS[shape]),
        "few_shot": Job("few_shot", 16, 32, 40),
        "answers": Job("answers", 8, 500, STEPS[shape], dev=8, loss_on="answer"),
        "all": Job("all", 8, 500, STEPS[shape], dev=8, loss_on="all"),
    }
    return [every[name] for name in names.split(",")]


def line(pairs: Pairs) -> str:
    """Return a line with the median ratios."""
    speeds, times = (ratios(asdict(pairs), key) for key in ("tokens_per_second", "run_s"))
    return (
        f"{pairs.shape} {pairs.method} {pairs.job} {pairs.precision}: "
        f"tokens/s {spread(speeds)}, command to result {spread(times)}"
    )


def main() -> None:
    """Measure, and write the page."""
    parser = arguments(__doc__)
    parser.add_argument("--minilm", type=Path)
    parser.add_argument("--smollm2", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--tokenizer", type=Path, default=POCKET)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--shapes", default="minilm,bert_base,roberta_large")
    parser.add_argument("--methods", default="prefix,prompt,lora,full")
    parser.add_argument("--jobs", default="sst2,few_shot")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--set", action="append", default=[], help="an override for ptrun")
    parser.add_argument("--keep", action="store_true", help="keep other cases of the page")
    given = parser.parse_args()
    os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": str(os.cpu_count())}
    name = given.out / f"peers_{given.precision}"
    file = name.with_suffix(".json")
    others = kept(file, {"pairs": []})["pairs"] if given.keep else []
    pairs = [asdict(one) for one in measure(given)]
    fresh = {(one["shape"], one["method"], one["job"]) for one in pairs}
    pairs = [p for p in others if (p["shape"], p["method"], p["job"]) not in fresh] + pairs
    content = {"date": date.today().isoformat(), "threads": os.cpu_count(), "pairs": pairs}
    keep(file, content)
    write_page(name, content)
    print(json.dumps(content))


if __name__ == "__main__":
    main()
