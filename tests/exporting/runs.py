"""A loaded method with random learned tensors, written as a PEFT folder and read by stock PEFT."""

import torch

from ptrun.exporting import stock_form as stock
from ptrun.exporting.export import parity
from ptrun.exporting.stock_form import form_of
from tests.families import PaperBackbone
from tests.small_runs import engine, sst2


def opinions(data_dir, pattern):
    """Return opinions with a pattern; words of several tokens are read at several masks."""
    task = sst2(data_dir, pattern)
    rule = {"rule": "mean"} if "{masks}" in pattern else {}
    task.pvps = {name: {**own, **rule} for name, own in task.pvps.items()}
    return task


def shipped(name):
    """Return a loaded backbone of the package."""
    backbone = PaperBackbone(name=name, shipped=name, dtype="fp32")
    backbone.load()
    return backbone


def moved(make, backbone, task, by=0.3):
    """Return a placed method whose learned tensors are all random, as after training."""
    torch.manual_seed(0)
    method = make(backbone, task)
    engine(backbone).place([method])
    with torch.no_grad():
        for tensor in method.learned().values():
            tensor.add_(torch.randn_like(tensor) * by)
    return method


def compared(method, folder, examples):
    """Return the form of a method, and the difference between it and its folder in stock PEFT."""
    form, backbone = form_of(method), method.backbone
    backbone.tokenizer().save_pretrained(folder)
    stock.write(folder, form, method, str(backbone.folder))
    model = stock.load(folder, form, method, "cpu")
    return form, parity(method, model, form, examples)
