"""The node of a task as its file has it, without the other groups, and each file once."""

from copy import deepcopy
from functools import cache

from hydra import compose, initialize_config_dir

from ptrun.config.build import plain
from ptrun.config.paths import conf_dir


def task_node(name):
    """Return the node that `task=name` composes, to be changed at will."""
    return deepcopy(_node(name))


@cache
def _node(name):
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        return plain(compose(f"task/{name}"))["task"]
