"""Measure an epoch of IDPG after the first one, with M(x) cached and with M(x) recomputed.

    python benchmarks/idpg_cache.py [--model DIR --data DIR --task glue_rte] [--train 96 --dev 48]

Uses Pocket BERT on pocket_sentiment, or the encoder in --model on real texts. Three members start
alike and alternate epochs (training, then dev) in one process on one thread. `kept` caches M(x).
`anew` recomputes it, with equal results. `released` recomputes it with dropout, as the paper's code
does. The figures are ratios of processor time, medians over rounds. results/idpg_cache.{md,json}
keep the figures of other forms and encoders.
"""

import argparse
import json
import os
import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.config.build import build
from ptrun.config.compose import compose_run
from ptrun.config.schema import train_config
from ptrun.hardware.torch_engine import TorchEngine
from ptrun.method.idpg import IDPG
from ptrun.training.member import Member

RESULTS = Path(__file__).parent / "results"
FORMS = {
    "S-IDPG-PHM": ["method.deep=false", "method.hidden=256", "method.shared_mixing=true"],
    "M-IDPG-PHM": [],
}
ROUNDS = 3  # after the first


class Anew(IDPG):
    """IDPG without the cache."""

    def unprepared(self, features, *, training):
        """Return no examples to compute beforehand."""
        return ()


KINDS = {"kept": IDPG, "anew": Anew, "released": partial(Anew, instance_dropout=True)}


class Losses(list[float]):
    """A journal that keeps the losses."""

    def log(self, row):
        """Record a step's loss."""
        self.extend([row["loss"]] if row["event"] == "step" else [])

    def save(self, tensors, meta):
        """Save nothing."""

    def restore(self):
        """Restore nothing."""


class Trial:
    """A member of one kind with its own backbone; all members start alike."""

    def __init__(self, kind: str, config: dict[str, Any], given: argparse.Namespace):
        backbone: PretrainedBackbone = build("backbone", config["backbone"])
        backbone.load()
        task = build("task", config["task"], given.data, None)
        torch.manual_seed(1)
        keys = set(config["method"]) - {"_target_", "instance_dropout"}
        method = KINDS[kind](backbone, task, **{key: config["method"][key] for key in keys})
        train = train_config({**config["train"], "batch_size": 16, "epochs": ROUNDS + 1})
        rows = [method.encode(task.load(p)[: getattr(given, p)]) for p in ("train", "dev")]
        self.losses = Losses()
        self.member = Member(method, *rows, lambda _: {"a": 0.0}, "a", train, 1, self.losses)
        self.answers: list[Any] = []
        self.engine = TorchEngine(
            backbone, device="cpu", precision="fp32", token_budget=2048, checkpointing=False
        )
        self.engine.place([method])

    def epoch(self) -> dict[str, float]:
        """Train an epoch and predict dev; return seconds of processor and wall time."""
        one, began, wall = self.member, time.process_time(), time.perf_counter()
        self.engine._prepare([one.method], [one.reads()], training=True)
        for _ in range(one.per_epoch):
            self.engine._step([one])
        trained = time.process_time()
        self.answers += [a.value for a in self.engine.predict([one.method], [one.dev])[0]]
        ended = time.process_time()
        return {
            "training": trained - began,
            "dev": ended - trained,
            "epoch": ended - began,
            "wall": time.perf_counter() - wall,
        }


def measured(form: str, overrides: list[str], given: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of one form on one encoder."""
    config = compose_run(["method=idpg", *FORMS[form], *overrides]).config
    trials = {kind: Trial(kind, config, given) for kind in KINDS}
    rounds = [{kind: t.epoch() for kind, t in trials.items()} for _ in range(ROUNDS + 1)]
    kept, anew = trials["kept"], trials["anew"]
    pairs = list(zip(kept.answers, anew.answers, strict=True))
    apart = [abs(a - b) for a, b in zip(kept.losses, anew.losses, strict=True)]
    tokens = statistics.mean(f.tokens for f in kept.member.features)
    return {
        "form": form,
        "encoder": kept.member.method.backbone.name,
        "task": config["task"]["name"],
        "tokens": round(tokens, 1),
        "examples": f"{len(kept.member.features)} / {len(kept.member.dev)}",
        **{kind: ratios(rounds, kind) for kind in ("anew", "released")},
        "seconds_kept": round(statistics.median(r["kept"]["epoch"] for r in rounds[1:]), 3),
        "answers": len(pairs),
        "answers_that_differ": sum(a != b for a, b in pairs),
        "largest_loss_difference": max(apart),
    }


def ratios(rounds: list[dict[str, dict[str, float]]], kind: str) -> dict[str, float]:
    """Return a kind's time as a multiple of `kept`, the median after the first round."""
    return {
        clock: round(statistics.median(r[kind][clock] / r["kept"][clock] for r in rounds[1:]), 2)
        for clock in rounds[0][kind]
    }


def table(found: list[dict[str, Any]]) -> str:
    """Return the figures as Markdown."""
    head = ["form", "encoder, task (tokens)", "train / dev", "anew: training", "dev", "epoch"]
    head += ["released: training", "dev", "epoch", "answers that differ", "largest loss difference"]
    lines = []
    for f in found:
        clocks = [str(f[k][c]) for k in ("anew", "released") for c in ("training", "dev", "epoch")]
        own = [f["form"], f"{f['encoder']}, {f['task']} ({f['tokens']})", f["examples"], *clocks]
        own += [f"{f['answers_that_differ']} of {f['answers']}"]
        lines.append([*own, f"{f['largest_loss_difference']:.1e}"])
    about = (
        "Processor time of an epoch after the first, as a multiple of the time with M(x) cached.\n"
        "`anew` recomputes M(x). `released` recomputes it with dropout. Figures are medians of\n"
        f"{ROUNDS} alternating rounds. The last two columns compare `anew` with the cache.\n"
        "The paper's low-resource setting has 100 training and 1,000 dev examples.\n"
        "If only matrix products cost time, training on T tokens and 5 vectors gains a factor of\n"
        "1 + T / 2(T + 5), because forward and backward remain. Dev gains 1 + T / (T + 5).\n"
    )
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join([about, *(f"| {' | '.join(row)} |" for row in rows), ""])


def save(one: dict[str, Any]) -> None:
    """Save figures; they replace older ones of the same form, encoder, task and examples."""
    file = RESULTS / "idpg_cache.json"
    found = json.loads(file.read_text()) if file.is_file() else []
    same = ("encoder", "task", "examples", "form")
    found = [f for f in found if any(f[key] != one[key] for key in same)] + [one]
    found.sort(key=lambda f: [f[key] for key in same], reverse=True)
    file.write_text(json.dumps(found, indent=1) + "\n")
    RESULTS.joinpath("idpg_cache.md").write_text(table(found))


def main() -> None:
    """Measure, save and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="a folder with a BERT")
    parser.add_argument("--data", help="a folder with TASK/{train,validation}.jsonl[.gz]")
    parser.add_argument("--task", default="glue_rte")
    parser.add_argument("--train", type=int, default=96, help="examples")
    parser.add_argument("--dev", type=int, default=48, help="examples")
    given = parser.parse_args()
    world = ["backbone=pocket_bert", "task=pocket_sentiment"]
    if given.model:
        real = f"backbone.path={given.model}"
        world = ["backbone=bert_base_uncased", real, f"task={given.task}"]
    for form in FORMS:
        save(measured(form, world, given))
    print(RESULTS.joinpath("idpg_cache.md").read_text())


if __name__ == "__main__":
    main()
