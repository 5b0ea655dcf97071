"""Small pieces that tests of training share: a task of six rows, an engine, a member."""

import json
import shutil
from functools import partial
from pathlib import Path

import torch

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.config.schema import Schedule, TrainConfig
from ptrun.hardware.torch_engine import TorchEngine
from ptrun.task.classification import Classification
from ptrun.task.tagging import Tagging
from ptrun.training.member import Member

SPLITS = {"train": "train", "dev": "validation", "test": "test"}
FORM = {"version": 1, "source": {"hub": "none"}, "splits": SPLITS}


class Memory:
    """A journal that keeps rows and states in memory."""

    def __init__(self, saved=None):
        self.rows, self.saved = [], saved

    def log(self, row):
        self.rows.append(row)

    def draft(self, tensors, meta):
        state = {k: v.clone() for k, v in tensors.items()}, dict(meta)
        return partial(setattr, self, "saved", state)

    def restore(self):
        return self.saved

    def losses(self):
        return [row["loss"] for row in self.rows if row["event"] == "step"]


def sst2(data_dir: Path, pattern: str | None = None) -> Classification:
    """Return six opinions, with a pattern and the words bad and good."""
    words = {"negative": ["bad"], "positive": ["good"]}
    pvps = {"own": {"pattern": pattern, "words": words}} if pattern else None
    keys = {"label": "label", "labels": {"negative": 0, "positive": 1}, "pvps": pvps}
    return Classification(str(data_dir), name="sst2", fields=["sentence"], **keys, **FORM)


def conll03(data_dir: Path) -> Tagging:
    keys = {"tokens": "tokens", "tags": "ner_tags", "entities": ["PER", "LOC"]}
    return Tagging(str(data_dir), name="conll03", **keys, **FORM)


def engine(backbone: PretrainedBackbone, budget: int = 40, device: str = "cpu") -> TorchEngine:
    return TorchEngine(
        backbone, device=device, precision="fp32", token_budget=budget, checkpointing=False
    )


def member(make, backbone, task, seed=1, journal=None, **train) -> Member:
    """Return a member whose method `make(backbone, task)` starts from the seed."""
    settings = {"max_steps": 20, "batch_size": 4, "lr": 1e-2, "schedule": Schedule.linear}
    torch.manual_seed(seed)
    method = make(backbone, task)
    examples = task.load("dev")
    score = partial(task.score, examples=examples)
    features = (method.encode(task.load("train")), method.encode(examples))
    config = TrainConfig(**{**settings, **train})
    return Member(method, *features, score, task.metric, config, seed, journal or Memory())


def train_batch(method, key=None):
    """Return the rows of train as a batch; in training their keys are `key` and on."""
    features = method.encode(method.task.load("train"))
    keys = None if key is None else torch.arange(len(features)) + key
    return engine(method.backbone)._collate(features, keys)


def scores(method, batch, given=None):
    given = method.inputs(batch) if given is None else given
    return method.readout.scores(method.backbone.forward(given), batch)


def fitted(members, budget: int = 40) -> TorchEngine:
    """Train members together; return the engine."""
    fit = engine(members[0].method.backbone, budget)
    fit.place([one.method for one in members])
    fit.fit(members)
    return fit


def reserving(electra, folder, first):
    """Copy an ELECTRA whose vocabulary gets reserved tokens: six from `first`, two from 200."""
    shutil.copytree(electra, folder)
    told = json.loads((folder / "tokenizer.json").read_text())
    names = {f"##{letter}": f"[unused{first + i}]" for i, letter in enumerate("ABCDEF")}
    names |= {f"##{letter}": f"[unused{200 + i}]" for i, letter in enumerate("GH")}
    vocabulary = told["model"]["vocab"]
    told["model"]["vocab"] = {names.get(word, word): i for word, i in vocabulary.items()}
    (folder / "tokenizer.json").write_text(json.dumps(told))
    return folder
