"""Read-outs by the name of their option."""

from ptrun.config.build import build
from ptrun.method.base import built
from ptrun.readout.choose import READINGS


def reading(readout="head", **keys):
    return READINGS[readout](**keys)


def reads(method, read_out, **options):
    """Return what makes a method with a read-out of a backbone and a task."""
    return lambda backbone, task, **more: method(backbone, task, read_out, **options, **more)


def readout_for(backbone, task, keys, *, soft):
    """Return what reads a task; `keys` has `readout` and its keys."""
    own = reading(**keys)
    own.check(backbone, task, soft=soft)
    return own.made(backbone, task, soft=soft)


def method_of(composed, backbone=None, task=None):
    """Return the method that a configuration names, as a run builds it."""
    backbone = backbone or build("backbone", composed.config["backbone"])
    task = task or build("task", composed.config["task"], None, None)
    return built(composed.components()["method"], composed.readout, backbone, task)
