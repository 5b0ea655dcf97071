"""The settings of a random model; every field is an override of `ptrun pretrain --random`."""

from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class Synthetic:
    """One model folder with random weights.

    Args:
        out: a new or empty output folder.
        dtype: dtype of the weights on disk: `bf16`, `fp16` or `fp32`.
        seed: random seed; the same seed gives the same bits on every machine.
        model: configuration keys that replace those of the backbone, as in model.num_layers=2;
            without backbone=NAME the whole configuration with its `model_type`.
        tokenizer: a folder whose tokenizer is copied; null is that of the pocket world, which
            has the words of the pocket tasks.
    """

    out: str
    dtype: Literal["bf16", "fp16", "fp32"] = "bf16"
    seed: int = 1
    model: dict[str, Any] = field(default_factory=dict)
    tokenizer: str | None = None
