"""Private doors of other libraries are few, and a test names the upgrade that each fears."""

from importlib import import_module

import torch
from torch import nn

from ptrun.config.arguments import Parser
from tests.design.doors import doors
from tests.tiers import package

DOORS = {
    "_actions": "argparse: the options of a parser, for completion and KEY=VALUE in place of one",
    "_version": "torch: how often a tensor was written, so that PEFT changes no frozen weight",
    "_init_tp_mesh_device": "DeepSpeed: groups of ranks without AutoTP",
    "_DATA_PARALLEL_GROUP": "DeepSpeed: as above",
    "_TENSOR_MODEL_PARALLEL_GROUP": "DeepSpeed: as above",
}
PROCESS = "_exit"  # os._exit, which Python documents


def test_no_other_private_name_of_a_library_is_used():
    assert {name for _, _, name in doors()} - {PROCESS} == set(DOORS)


def test_argparse_keeps_the_options_of_a_parser_and_its_groups():
    parser = Parser("name", None, "")
    parser.add_argument_group("group").add_argument("--long", "-l")
    assert parser.flags == ["-h", "--help", "--long", "-l"]


def test_torch_counts_the_writes_of_a_tensor():
    weight = nn.Parameter(torch.ones(2))
    before = weight._version
    nn.init.zeros_(weight)
    assert weight._version > before


def test_deepspeed_has_the_groups_that_autotp_makes():
    package("deepspeed")
    groups = import_module("deepspeed.utils.groups")
    for name in ("_init_tp_mesh_device", "_DATA_PARALLEL_GROUP", "_TENSOR_MODEL_PARALLEL_GROUP"):
        assert hasattr(groups, name)
