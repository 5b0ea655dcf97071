"""Compare length-sorted micro-batches with padding to the longest row: padding share and speed.

    python benchmarks/padding.py --data DIR [--precision fp32] [--steps 6]

Takes P-tuning v2 steps on a BERT-base shape with random weights, batch size 32 and the lengths of
SST-2. Both ways alternate in one process, so a noisy machine does not change the ratio. Reads
DIR/sst2/train.jsonl[.gz].
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
import transformers

from ptrun.backbone.packing.groups import cut, padding
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.config.build import build
from ptrun.config.compose import compose_run
from ptrun.config.schema import TrainConfig
from ptrun.hardware import torch_engine
from ptrun.hardware.torch_engine import TorchEngine
from ptrun.method.ptuning_v2 import PTuningV2
from ptrun.training.member import Member


class Silent:
    """A journal that records nothing."""

    def log(self, row):
        """Ignore a row."""

    def save(self, tensors, meta):
        """Save nothing."""

    def restore(self):
        """Restore nothing."""


def backbone(tokenizer: str) -> PretrainedBackbone:
    """Return a loaded BERT-base shape with random weights and the given tokenizer."""
    config = compose_run(["backbone=bert_base_uncased"]).config["backbone"]["config"]
    folder = Path(tempfile.mkdtemp())
    model = transformers.BertForMaskedLM(
        transformers.AutoConfig.for_model(
            "bert", **{k: v for k, v in config.items() if k != "model_type"}
        )
    )
    model.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(tokenizer).save_pretrained(folder)
    made = PretrainedBackbone(name="bert_base_shape", path=str(folder))
    made.load()
    return made


def one_batch(lengths, budget, price=0):
    """Return one micro-batch: all rows are padded to the longest, as most trainers do."""
    return [list(range(len(lengths)))]


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--tokenizer", required=True, help="a folder with a BERT tokenizer")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--steps", type=int, default=6)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    model = backbone(arguments.tokenizer)
    task = build("task", compose_run(["task=sst2"]).config["task"], arguments.data)
    method = PTuningV2(model, task, length=20)
    features = method.encode(task.load("train")[:2000])
    train = TrainConfig(max_steps=10_000)
    member = Member(method, features, features[:1], lambda _: {"a": 0.0}, "a", train, 1, Silent())
    engine = TorchEngine(
        model, device="cpu", precision=arguments.precision, token_budget=2048, checkpointing=False
    )
    engine.place([method])
    seconds: dict[str, list[float]] = {"sorted": [], "longest": []}
    waste: dict[str, list[float]] = {"sorted": [], "longest": []}
    tokens = 0
    for step in range(arguments.steps + 1):
        lengths = [len(f.ids) for f in member.batch()]
        for name, cutter in {"sorted": cut, "longest": one_batch}.items():
            torch_engine.cut = cutter
            started = time.perf_counter()
            engine._accumulate([member])
            if step:  # the first step warms up
                seconds[name].append(time.perf_counter() - started)
                waste[name].append(padding(lengths, cutter(lengths, 2048)))
        tokens += sum(lengths) if step else 0
        member.step += 1
    ratios = [b / a for a, b in zip(seconds["sorted"], seconds["longest"], strict=True)]
    print(
        json.dumps(
            {
                "precision": engine.precision,
                "threads": torch.get_num_threads(),
                "speed_ratio_median": round(statistics.median(ratios), 3),
                "speed_ratio_total": round(sum(seconds["longest"]) / sum(seconds["sorted"]), 3),
                "tokens_per_second": {n: round(tokens / sum(s), 1) for n, s in seconds.items()},
                "padding_share": {n: round(statistics.mean(w), 3) for n, w in waste.items()},
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
