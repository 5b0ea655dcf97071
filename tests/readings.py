"""Read-outs by the name of their option."""

from ptrun.config.build import build, target
from ptrun.method.base import check_pair
from ptrun.readout.choose import READINGS


def reading(readout="head", **keys):
    """Return a read-out with its keys."""
    return READINGS[readout](**keys)


def readout_for(backbone, task, keys, *, soft):
    """Return what reads a task; `keys` has `readout` and its keys."""
    own = reading(**keys)
    own.check(backbone, task, soft=soft)
    return own.made(backbone, task, soft=soft)


def method_of(composed, backbone, task):
    """Return the method that a configuration names, as a run builds it."""
    node = composed.config["method"]
    _, read = check_pair(target("method", node), *composed.readout, backbone, task)
    return build("method", node, backbone, task, build("readout", read))
