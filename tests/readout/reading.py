"""What tests of read-outs share: tasks by name, and one pass of a read-out over a backbone."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import torch
from omegaconf import OmegaConf

from ptrun.backbone.base import BackboneInput, DecoderInput
from ptrun.backbone.registry import family_of
from ptrun.config import build
from ptrun.readout.base import collate
from tests.families import FAMILIES, PaperBackbone
from tests.small_runs import engine

CONF = Path(__file__).parents[2] / "conf"
CPU = torch.device("cpu")


def task(name, data_dir=None, **changes):
    node = OmegaConf.to_container(OmegaConf.load(CONF / "task" / f"{name}.yaml"), resolve=False)
    if data_dir:
        node["source"] = {"hub": "none", "folder": name}
    return build.build("task", {**node, **changes}, str(data_dir) if data_dir else None, None)


def pocket(name):
    backbone = PaperBackbone(name=name, shipped=name, dtype="fp32")
    backbone.load()
    return backbone


OF = {"masked": "bert", "causal": "gpt2", "seq2seq": "t5", "infilling": "blocklm"}
"""A model type of each family."""


def words_only(tokenizer, family="masked"):
    """Return what a read-out needs of a backbone to make rows: a tokenizer, and sizes."""
    own = {"shape": SimpleNamespace(hidden_size=8, dropout=0.1, positions=512), "family": family}
    own |= {"config": {}, "languages": {}, "reads_languages": False}
    architecture = family_of("", {"model_type": OF[family]}, FAMILIES)
    return SimpleNamespace(
        tokenizer=lambda words=False, languages=None: tokenizer, architecture=architecture, **own
    )


def given(readout, batch):
    """Return what a backbone reads for a batch, without any prompt."""
    decoder = None
    if batch.decoder is not None:
        decoder = DecoderInput(mask=batch.decoder_mask, ids=batch.decoder)
    text = BackboneInput(
        ids=batch.ids, mask=batch.mask, types=batch.types, keys=batch.keys, decoder=decoder
    )
    return readout.request(text, batch.reads)


def read(readout, examples, keys=None, room=64):
    """Return a batch of examples, and what the backbone says there."""
    batch = collate(readout.encode(examples, room), keys, CPU)
    return batch, readout.backbone.forward(given(readout, batch))


def loss_and_answers(readout, examples):
    """Return the mean loss of examples, and what is answered at once."""
    with torch.no_grad():
        batch, output = read(readout, examples)
        loss = readout.loss(output, batch) / max(1, len(batch.targets))
        return float(loss), [answer.value for answer in readout.decode(output, batch)]


def fresh(readout):
    """Give a head weights that tell labels apart."""
    with torch.no_grad():
        for parameter in readout.parameters():
            parameter.normal_(std=0.5)
    return readout


def answers(backbone, methods, features, budget):
    fit = engine(backbone, budget)
    fit.place(methods)
    return [[a.value for a in own] for own in fit.predict(methods, features)]


def renamed(examples, count):
    """Return copies of examples, ids apart, as many as wanted."""
    return [replace(examples[i % len(examples)], id=str(i)) for i in range(count)]
