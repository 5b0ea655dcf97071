"""Compare methods on several labels a row with logistic regressions on frozen vectors.

    make weights && python benchmarks/multilabel.py --data DIR [--weights weights/minilm_l6]

A row is one news text of DIR/ag_news, or two of them in one: its labels are those of its texts.
Three seeds; MiniLM; thresholds are chosen on dev everywhere. The regressions read the mean of the
frozen model's states, one for each label, with a strength chosen on dev. Writes
results/multilabel.md.
"""

import argparse
import gzip
import json
import random
import tempfile
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch
from running import HERE, RESULTS, ptrun, results
from sklearn.linear_model import LogisticRegression

from ptrun.task.multilabel import best_threshold, label_scores
from ptrun.types import Prediction

SIZES = {"train": 1000, "dev": 300, "test": 500}
NAMES = ("World", "Sports", "Business", "Sci/Tech")
METHODS = {
    "fine-tuning": ("method=fine_tuning", "train.lr=1e-4", "train.max_steps=120"),
    "LoRA": ("method=lora", "train.lr=1e-3", "train.max_steps=120"),
}
METRICS = ("micro_f1", "macro_f1", "subset_accuracy", "average_precision")
STRENGTHS = (0.1, 1.0, 10.0, 100.0)


def rows(data: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each part; no text is in two of them."""
    text = "".join(
        gzip.decompress((data / "ag_news" / f"{split}.jsonl.gz").read_bytes()).decode()
        for split in ("train", "test")
    )
    news = [json.loads(line) for line in text.splitlines()]
    dice = random.Random(0)
    dice.shuffle(news)
    left, made = iter(news), {}
    for part, count in SIZES.items():
        own = [[next(left) for _ in range(dice.choice((1, 2)))] for _ in range(count)]
        made[part] = [
            {
                "text": " ".join(one["text"] for one in several),
                "topics": sorted({NAMES[int(one["label"])] for one in several}),
            }
            for several in own
        ]
    return made


def trained(made: dict[str, list[dict[str, Any]]], weights: Path, folder: Path) -> dict[str, Any]:
    """Return the test scores of each method, by seed."""
    files = {part: folder / f"{part}.jsonl" for part in made}
    for part, file in files.items():
        file.write_text("".join(json.dumps(row) + "\n" for row in made[part]), encoding="utf-8")
    task = ["task=csv", "task.text=text", "task.label=topics", "task.kind=multilabel"]
    task += [f"task.{part}={file}" for part, file in files.items()]
    common = ["backbone=minilm_l6", f"backbone.path={weights}", "readout.pooler=mean"]
    common += ["train.batch_size=16", "train.eval_every=40", "seed=1,2,3"]
    found = {}
    for name, own in METHODS.items():
        out = folder / own[0].partition("=")[2]
        ptrun("-m", *task, *common, *own, f"outputs={out}")
        found[name] = [run["metrics"]["test"] for run in results(out)]
        print(name, found[name], flush=True)
    return found


@torch.no_grad()
def vectors(texts: list[str], weights: Path) -> np.ndarray:
    """Return the mean state of each text."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(weights), AutoModel.from_pretrained(weights)
    found = []
    for start in range(0, len(texts), 64):
        some = tokenizer(
            texts[start : start + 64], padding=True, truncation=True, return_tensors="pt"
        )
        mask = some["attention_mask"][..., None]
        states = model.eval()(**some).last_hidden_state * mask
        found.append((states.sum(1) / mask.sum(1)).numpy())
    return np.concatenate(found)


def regressions(made: dict[str, list[dict[str, Any]]], weights: Path) -> dict[str, float]:
    """Return the test scores of one regression for each label."""
    inputs = {p: vectors([row["text"] for row in own], weights) for p, own in made.items()}
    golds = {p: [row["topics"] for row in own] for p, own in made.items()}
    best: tuple[float, dict[str, float]] = (-1.0, {})
    for strength in STRENGTHS:
        shares = {"dev": [], "test": []}
        for label in NAMES:
            model = LogisticRegression(C=strength, max_iter=2000)
            model.fit(inputs["train"], [label in own for own in golds["train"]])
            for part, own in shares.items():
                own.append(model.predict_proba(inputs[part])[:, 1])
        both = {part: np.stack(own, axis=1) for part, own in shares.items()}
        has = np.array([[label in own for label in NAMES] for own in golds["dev"]])
        limit = best_threshold(both["dev"].ravel(), has.ravel())
        scores = {p: label_scores(NAMES, decided(own, limit), golds[p]) for p, own in both.items()}
        best = max(best, (scores["dev"]["micro_f1"], scores["test"]), key=lambda own: own[0])
    return best[1]


def decided(shares: np.ndarray, limit: float) -> list[Prediction]:
    """Return the labels above a threshold, and all probabilities."""
    every = [dict(zip(NAMES, own.tolist(), strict=True)) for own in shares]
    return [
        Prediction("", [label for label, share in own.items() if share > limit], probabilities=own)
        for own in every
    ]


def main() -> None:
    """Train, compare, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--weights", type=Path, default=HERE.parent / "weights" / "minilm_l6")
    given = parser.parse_args()
    made = rows(given.data)
    with tempfile.TemporaryDirectory() as folder:
        found = trained(made, given.weights, Path(folder))
    counts = ", ".join(f"{count:,} {part}" for part, count in SIZES.items())
    lines = [
        "# Several labels a row", "",
        f"One or two news texts in a row, labels of four ({counts}); MiniLM-L6, mean of tokens, "
        "three seeds, one rate each. One threshold for all labels, chosen on dev. Mean ± standard "
        "deviation on test.", "",
        f"| method | {' | '.join(METRICS)} |", f"|---|{'---|' * len(METRICS)}",
    ]  # fmt: skip
    for name, seeds in found.items():
        cells = [[run[metric] for run in seeds] for metric in METRICS]
        lines.append(
            f"| {name} | {' | '.join(f'{fmean(c):.1f} ± {stdev(c):.1f}' for c in cells)} |"
        )
    plain = regressions(made, given.weights)
    cells = [f"{plain[metric]:.1f}" for metric in METRICS]
    lines.append(f"| logistic regressions on frozen vectors | {' | '.join(cells)} |")
    (RESULTS / "multilabel.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
