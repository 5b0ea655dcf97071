"""Loads one rank's part of a model that a tensor-parallel group divides with DeepSpeed's AutoTP.

The model is built without weights and cut. Each rank then reads only its slices of the safetensors
files, so no rank ever holds the whole model; AutoTP alone would load it whole first (0.19). Unlike
in AutoTP, T5's relative bias is replicated and each rank uses the columns of its heads. So every
rank has its whole gradient, and `requires_grad` does not change.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ptrun.backbone.cuts import Cut, Pattern, cut_of, pattern_of
from ptrun.backbone.division import Division
from ptrun.backbone.reading.slices import fill, skeleton


def load(
    model_class: Any,
    config: Any,
    folder: Path,
    own_output: bool,
    division: Division,
    dtype: torch.dtype,
) -> tuple[Any, dict[int, Cut], set[str]]:
    """Return a rank's part of a model, the cuts by parameter id, and the names the files lack.

    A parameter keeps its id when its device or dtype changes. `own_output` is True for a T5 with an
    untied output matrix.

    Raises:
        UserError: the model cannot be divided over the group.
    """
    pattern = pattern_of(config, division.size)
    model = skeleton(model_class, config, folder, own_output=own_output)
    turned = _turn_conv1d(model)
    cuts = {
        name: cut_of(pattern, name, turned=name.rpartition(".")[0] in turned)
        for name, _ in model.named_parameters()
    }
    _cut(model, pattern, division)

    def own(name: str, whole: Any) -> Tensor:
        return cuts[name].part(whole, division.rank, division.size)

    missing = fill(model, folder, dtype, division.device, own)
    by_parameter = {id(p): cuts[name] for name, p in model.named_parameters()}
    return model.to(division.device), by_parameter, missing


def _turn_conv1d(model: nn.Module) -> set[str]:
    """Replace GPT-2's transposed maps, which AutoTP does not cut; return their names."""
    from transformers.pytorch_utils import Conv1D

    transposed = {name: m for name, m in model.named_modules() if isinstance(m, Conv1D)}
    for name, module in transposed.items():
        parent, _, child = name.rpartition(".")
        inputs, outputs = module.weight.shape
        setattr(model.get_submodule(parent), child, nn.Linear(inputs, outputs, device="meta"))
    return set(transposed)


def _cut(model: Any, pattern: Pattern, division: Division) -> None:
    """Replace the maps that are cut by AutoTP's layers."""
    from deepspeed.module_inject.auto_tp import AutoTP
    from deepspeed.module_inject.autotp_config import AutoTPConfig
    from deepspeed.module_inject.layers import set_autotp_mode

    set_autotp_mode(training=True)
    specs: list[dict[str, Any]] = [
        {"patterns": [rf"({pattern.column})\.weight$"], "partition_type": "column"},
        {"patterns": [rf"({pattern.row})\.weight$"], "partition_type": "row"},
    ]
    if pattern.output:
        output = {"partition_type": "column", "gather_output": True}
        specs.append({"patterns": [r"lm_head\.weight$"], **output})
    if pattern.fused:
        fused = {"partition_type": "column", "shape": [3, -1], "partition_dim": 0}
        specs.append({"patterns": [rf"({pattern.fused})\.weight$"], **fused})
    autotp = AutoTP(
        module=model,
        all_reduce_linears=(),
        prefix="",
        state_dict=None,
        linear_layer_setting=(nn.Linear, nn.Embedding),
        orig_layer_impl=None,
        partition_config=AutoTPConfig.from_dict({"tp_size": division.size, "layer_specs": specs}),
        model_config=model.config,
        training_mode=True,
    )
    autotp.set_tensor_parallel_config(division.size, division.group)
    autotp.update_linear_policies()
    autotp._replace_module(model)
    _set_widths(model, division)


def _set_widths(model: nn.Module, division: Division) -> None:
    """Set the rank's widths where AutoTP does not."""
    for name, module in model.named_modules():
        if hasattr(module, "split_size"):  # GPT-2's width of one of query, key and value
            module.split_size //= division.size
        if name.endswith("relative_attention_bias"):
            module.register_forward_hook(lambda _module, _inputs, bias: division.own(bias, -1))
