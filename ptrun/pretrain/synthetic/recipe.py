"""What a random model is made of: every field is typed on the command line."""

from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class Synthetic:
    """One model folder whose weights nobody trained.

    Args:
        out: the folder that is written, new or empty.
        dtype: of the weights on disk: `bf16`, `fp16` or `fp32`.
        seed: the same one gives the same bits, on every machine.
        model: configuration keys in place of the backbone's own, as in model.num_layers=2; without
            backbone=NAME the whole configuration, its `model_type` included.
        tokenizer: a folder whose tokenizer is copied; null is that of the pocket world, which
            knows the words of the pocket tasks.
    """

    out: str
    dtype: Literal["bf16", "fp16", "fp32"] = "bf16"
    seed: int = 1
    model: dict[str, Any] = field(default_factory=dict)
    tokenizer: str | None = None
