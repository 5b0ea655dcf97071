"""The commands that write: what is typed, and what they leave whatever became of them before."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workshop.drill.warm import HAS_RANKS
from workshop.drill.world import SAVES, World

SHARDS = {"ptrun.papers.labelled:_SHARD": 16}
_MODEL = ("model.safetensors", "config.json", "tokenizer.json")


@dataclass(frozen=True)
class Work:
    """A command.

    Args:
        line: its arguments, those of `ptrun` or behind a module of the workshop, in its folder.
        answer: what it leaves there.
        set: values of the code, so that short commands save often.
    """

    line: Callable[[World, Path], list[str]]
    answer: Callable[[Path], str]
    set: Mapping[str, Any] = field(default_factory=dict)


def of_runs(folder: Path) -> str:
    """Return metrics, journal and tensors of all runs, and the lines that were labelled for them.

    Runs that `rerun=true` set aside do not count.
    """
    files = [file for file in sorted(folder.rglob("result.json")) if "~" not in str(file)]
    found = {file.parent.name: of_run(file.parent) for file in files}
    shards = [file.read_bytes().hex() for file in sorted(folder.glob(".labels/*/0*.arrow"))]
    return json.dumps([found, shards]) if found else ""


def of_run(folder: Path) -> str:
    """Return what a finished run left: metrics, journal, and the bytes of its prompt."""
    try:
        metrics = json.loads((folder / "result.json").read_text())["metrics"]
        prompt = (folder / "prompt.safetensors").read_bytes().hex()
        return json.dumps([metrics, (folder / "metrics.jsonl").read_text(), prompt])
    except FileNotFoundError:
        return "nothing"


def of_model(folder: Path) -> str:
    """Return the digests of a model's weights, configuration and tokenizer."""
    files = [folder / "made" / name for name in _MODEL]
    if not all(file.is_file() for file in files):
        return ""
    return " ".join(hashlib.sha256(file.read_bytes()).hexdigest() for file in files)


def of_files(folder: Path) -> str:
    """Return the files that are no drafts, and what is in them."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    own = [file for file in files if not _is_hidden(file, folder)]
    return "".join(f"{file.relative_to(folder)}\n{file.read_bytes().hex()}\n" for file in own)


def of_search(folder: Path) -> str:
    """Return the report of a search, and its runs."""
    report = folder / "runs" / "search.json"
    return report.read_text() + of_runs(folder) if report.is_file() else ""


def _is_hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(folder).parts)


def _run(world: World, folder: Path) -> list[str]:
    return [*world.line, f"outputs={folder}"]


def _writing(world: World, folder: Path) -> list[str]:
    """Learn to write texts, and write those of dev and test."""
    own = ["task=pocket_writing", "backbone=pocket_gpt2", "method=prompt_tuning"]
    own += ["task.source.rows={train:32,validation:12,test:24}", "readout.max_new_tokens=12"]
    own += ["readout.write_every=1", "train.max_steps=6", "train.eval_every=3"]
    return [*own, "method.length=3", "train.batch_size=8", f"outputs={folder}"]


def _sweep(world: World, folder: Path) -> list[str]:
    return ["-m", *world.table(), "seed=1,2", "sweep.share=none", f"outputs={folder}"]


def _group(world: World, folder: Path) -> list[str]:
    return ["-m", *world.table(), "seed=1,2,3", "sweep.share=auto", f"outputs={folder}"]


def _ranks(world: World, folder: Path) -> list[str]:
    own = ["hardware=zero1", "hardware.device=cpu", "hardware.ranks=2"]
    return [*world.table("method=fine_tuning", "train.lr=1e-4"), *own, f"outputs={folder}"]


def _ppt(world: World, folder: Path) -> list[str]:
    """Pre-train a prompt on lines without labels, then start from it."""
    own = ["start=pretrained:ppt_nsp", "readout=verbalizer", "readout.pattern=ppt_pt"]
    own += ["pretraining.recipe=prompt_tuning", "pretraining.readout.pattern=pocket"]
    source = f"{{source:{{corpus:{world.inputs}/lines.txt,shares:[70,15,15]}}}}"
    train = "{max_steps:12,eval_every:4,batch_size:8}"
    own += [f"pretraining.task={source}", f"pretraining.train={train}"]
    return [*POCKET_PAIRS, *own, f"outputs={folder}"]


POCKET_PAIRS = ["task=pocket_pairs", "method=prompt_tuning", "method.length=3"]
POCKET_PAIRS += ["setting=few_shot_32", "train.max_steps=4", "train.eval_every=2"]
POCKET_PAIRS += ["train.batch_size=8"]


def _labelling(world: World, folder: Path) -> list[str]:
    """Label lines with a finished run, and learn a prompt on them."""
    own = ["task=ppt_cls", f"task.source.corpus={world.inputs}/lines.txt"]
    own += [f"task.source.labeller=run:{world.finished}", "task.source.shares=[70,15,15]"]
    own += ["task.source.thresholds={first:0,last:0,other:0}", "method=prompt_tuning"]
    own += ["method.length=3", "train.max_steps=4", "train.eval_every=2", "train.batch_size=8"]
    return [*own, f"outputs={folder}"]


def _pretrain(world: World, folder: Path) -> list[str]:
    own = ["backbone=pocket_bert", "model.num_hidden_layers=1", f"out={folder}/made"]
    return ["workshop.random_model", *own]


def _adapt(world: World, folder: Path) -> list[str]:
    own = ["backbone=pocket_t5", "steps=6", "batch=4", "length=32", "held_out=4", "save_every=0"]
    return [
        "workshop.adapt",
        *own,
        f"corpus={world.inputs}/short.txt",
        "device=cpu",
        f"out={folder}/made",
    ]


def _import(world: World, folder: Path) -> list[str]:
    line = ["import", "data", "spans", str(world.inputs / "names.jsonl")]
    return [*line, "--task", "my_names", "--out", str(folder / "made")]


def _predict(world: World, folder: Path) -> list[str]:
    line = ["predict", str(world.finished), "--input", str(world.inputs / "rows.csv")]
    return [*line, "--output", str(folder / "answers.jsonl")]


def _search(world: World, folder: Path) -> list[str]:
    own = ["train.lr=1e-3,1e-2", "--sampler", "grid", "--together", "1", "--seeds", "1"]
    return ["search", *world.table(), *own, f"outputs={folder}"]


def _export(world: World, folder: Path) -> list[str]:
    return ["export", str(world.finished), "--to", "peft", str(folder / "made")]


def _report(world: World, folder: Path) -> list[str]:
    return ["report", str(world.root / "clean"), "--csv", str(folder / "table.csv")]


WORKS = {
    "single run": Work(_run, of_runs, SAVES),
    "writing texts": Work(_writing, of_runs, SAVES),
    "sweep": Work(_sweep, of_runs, SAVES),
    "fused group": Work(_group, of_runs, SAVES),
    "two-rank ZeRO-1": Work(_ranks, of_runs, SAVES),
    "PPT pre-training": Work(_ppt, of_runs, SAVES),
    "workshop.random_model": Work(_pretrain, of_model),
    "workshop.adapt": Work(_adapt, of_model),
    "labelling": Work(_labelling, of_runs, {**SAVES, **SHARDS}),
    "import data": Work(_import, of_files),
    "predict --output": Work(_predict, of_files),
    "search": Work(_search, of_search, SAVES),
    "export": Work(_export, of_files),
    "report --csv": Work(_report, of_files),
}
if not HAS_RANKS:
    del WORKS["two-rank ZeRO-1"]
