"""Compare prompts over a frozen backbone in fp32, int8 and nf4, on real weights and real data.

    make weights && python benchmarks/quantization.py --data DIR --weights weights
        [--models NAME ...] [--methods NAME ...] [--formats NAME ...] [--steps N]

Opinions (SST-2): 2,000 texts to train, the first texts of dev, five seeds, 16 texts a step. Rows
that are stored are not done again. `--formats` adds bf16. Writes results/quantization.{json,md}:
dev accuracy by seed and its difference to fp32 with a 95 % interval, the cosine of the prompt's
first gradient with that in fp32, bytes of the weights, and the speed of one run alone.
"""

import argparse
import json
import shutil
import tempfile
import textwrap
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from running import arguments, keep, kept, lines, masks, ptrun, results

from ptrun.backbone.dropout import RULE
from ptrun.papers.ours import interval

ROWS = {"train": 2000, "test": 50}
FORMATS = {
    "fp32": [],
    "bf16": ["hardware.precision=bf16"],
    "int8": ["hardware.quantization=int8"],
    "nf4": ["hardware.quantization=nf4"],
}
WORDS = "readout=verbalizer"


@dataclass(frozen=True)
class Model:
    """The steps of a run, the texts of dev, and the methods."""

    steps: int
    dev: int
    methods: dict[str, list[str]]


MODELS = {
    "minilm_l6": Model(
        150, 400, {"P-tuning v2": ["method=ptuning_v2"], "PT": ["method=prompt_tuning"]}
    ),
    "smollm2_135m": Model(
        8,
        100,
        {"P-tuning v2": ["method=ptuning_v2", WORDS], "PT": ["method=prompt_tuning", WORDS]},
    ),
}


def cut(data: Path, folder: Path, dev: int) -> None:
    """Write the first rows of each split."""
    (folder / "sst2").mkdir(parents=True)
    for split, count in (*ROWS.items(), ("validation", dev)):
        rows = [json.dumps(row) + "\n" for row in lines(data, f"sst2/{split}")[:count]]
        (folder / "sst2" / f"{split}.jsonl").write_text("".join(rows))


def typed(model: str, method: str, form: str, given: argparse.Namespace) -> list[str]:
    """Return the overrides of a cell, without a seed."""
    steps = given.steps or MODELS[model].steps
    return [
        f"backbone={model}",
        f"backbone.path={given.weights / model}",
        "task=sst2",
        "train.batch_size=16",
        "train.lr=1e-2",
        f"train.max_steps={steps}",
        f"train.eval_every={steps}",
        *MODELS[model].methods[method],
        *FORMATS[form],
    ]


def done(line: list[str], outputs: Path) -> list[dict]:
    """Do the runs of a command; return their results by seed."""
    shutil.rmtree(outputs, ignore_errors=True)
    ptrun(*line, f"outputs={outputs}")
    return results(outputs)


def first_gradient(overrides: list[str]) -> tuple[Any, int]:
    """Return the prompt's gradient on 16 texts without dropout, and the bytes of the weights."""
    import torch

    from ptrun.config.compose import compose_run
    from ptrun.readout.base import collate
    from ptrun.runs.examples import divide, split_of
    from ptrun.runs.plan import plan

    planned = plan(compose_run([*overrides, "seed=1"]))
    torch.manual_seed(1)
    method, engine = planned.build_method(), planned.engine
    engine.load(tuned=False)
    engine.place([method])
    texts = divide(method, split_of(planned)[0])[0].split.train[:16]
    batch = collate(method.encode(texts), None, torch.device("cpu"))
    for parameter in method.learned().values():
        parameter.requires_grad_(True)
    method.loss(engine.backbone.forward(method.inputs(batch)), batch).backward()
    prompt = {n: p.grad for n, p in method.learned().items() if not n.startswith("readout.")}
    model = engine.backbone.model
    tensors = {id(t): t for t in (*model.parameters(), *model.buffers()) if not t.is_meta}
    held = sum(t.numel() * t.element_size() for t in tensors.values())
    return torch.cat([gradient.flatten() for gradient in prompt.values()]), held


def cell(model: str, method: str, given: argparse.Namespace, work: Path) -> list[dict]:
    """Do all formats of a method on a model; return a row for each."""
    import torch

    rows, plain, base = [], None, None
    for form in given.formats:
        data = f"data_dir={work / model}"
        overrides = [*typed(model, method, form, given), data]
        gradient, held = first_gradient(overrides)
        plain = gradient if plain is None else plain
        runs = done(["-m", *overrides, "seed=1,2,3,4,5"], work / "runs")
        (alone,) = done([*overrides, "seed=6"], work / "alone")
        dev = [run["metrics"]["dev"][run["metric"]] for run in runs]
        base = dev if base is None else base
        gap = interval([a - b for a, b in zip(dev, base, strict=True)], "mean", 0.0, None, 0)
        rows.append(
            {
                "model": model,
                "method": method,
                "format": form,
                "masks": RULE,
                "dev": dev,
                "difference": [gap.difference, gap.low, gap.high],
                "cosine": float(torch.cosine_similarity(gradient, plain, dim=0)),
                "weights_mib": round(held / 2**20, 1),
                "tokens_per_second": round(alone["manifest"]["tokens_per_second"]),
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    return rows


_HEAD = """\
# A frozen backbone in fewer bits

{told}

| model | method | format | dev accuracy | difference | cosine | weights MiB | tokens/s |
|---|---|---|---|---|---|---|---|
"""
_TOLD = """\
SST-2, {train:,} texts to train, five seeds, {rule}, batches of 16, rate 1e-2 for all; {sizes}.
Real weights from `make weights`, two CPU cores. A difference is to fp32, seed by seed, with the
95 % interval of its mean. The cosine is that of the prompt's gradients on 16 texts before
training. Speed is that of one run alone, on a machine that other work shared. A cosine depends on
the start too: uniform noise of a tenth of int8's step in SmolLM2's weights gives 0.984 for
P-tuning v2, of a whole step 0.256. {left_out}"""


def page(rows: list[dict]) -> str:
    """Return the page."""
    told = [f"{name} {own.steps} steps and {own.dev} texts of dev" for name, own in MODELS.items()]
    cells = [(m, own, form) for m in MODELS for own in MODELS[m].methods for form in FORMATS]
    done = {(row["model"], row["method"], row["format"]) for row in rows}
    missing = [" ".join(cell) for cell in cells if cell not in done]
    left_out = f"Not measured: {', '.join(missing)}." if missing else ""
    words = _TOLD.format(**ROWS, sizes="; ".join(told), left_out=left_out, rule=masks(rows))
    head = _HEAD.format(told=textwrap.fill(" ".join(words.split()), 100))
    return head + "\n".join(map(_line, rows)) + "\n"


def _line(own: dict) -> str:
    mean, low, high = own["difference"]
    shown = "" if own["format"] == "fp32" else f"{mean:+.2f} ({low:+.2f} to {high:+.2f})"
    cells = [own["model"], own["method"], own["format"]]
    cells += [f"{fmean(own['dev']):.2f} ± {stdev(own['dev']):.2f}", shown, f"{own['cosine']:.4f}"]
    return f"| {' | '.join([*cells, str(own['weights_mib']), str(own['tokens_per_second'])])} |"


def main() -> None:
    """Measure every cell, keep each as it ends, and write the page."""
    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path, help="folder with sst2/*.jsonl.gz")
    parser.add_argument("--weights", type=Path, default=Path("weights"))
    parser.add_argument("--formats", nargs="+", default=["fp32", "int8", "nf4"])
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--methods", nargs="+", default=["P-tuning v2", "PT"])
    parser.add_argument("--steps", type=int, help="in place of a model's own")
    parser.add_argument("--page", action="store_true", help="only write the page")
    given = parser.parse_args()
    file = given.out / "quantization.json"
    rows = kept(file, [])
    with tempfile.TemporaryDirectory() as work:
        for model in () if given.page else given.models:
            cut(given.data, Path(work, model), MODELS[model].dev)
            for method in given.methods:
                if (model, method) not in {(row["model"], row["method"]) for row in rows}:
                    rows += cell(model, method, given, Path(work))
                    keep(file, rows)
    file.with_suffix(".md").write_text(page(rows))


if __name__ == "__main__":
    main()
