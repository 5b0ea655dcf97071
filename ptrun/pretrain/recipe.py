"""The settings of `ptrun adapt` and of `ptrun pretrain --random`; every field is an override."""

from dataclasses import dataclass, field
from typing import Any, Literal

from ptrun.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Adaptation:
    """Continued training of an encoder-decoder as a prefix language model.

    Lester et al. 2021 adapt T5 for up to 100,000 steps. PPT reports 10,000 steps, and its code uses
    a rate of 1e-3. Neither reports the batch size; the default of `batch` is our choice.

    Args:
        corpus: `pocket`, or a file or folder of documents: JSON lines or text, of any size.
        field: key of the text in a JSON line.
        out: output folder; null is `outputs/adapt/<backbone>_lm`.
        sentinel: end the text with the first sentinel and begin its continuation with it (CPM-2 in
            PPT's code); false adds none (Lester et al.).
        length: most tokens of a text and its continuation together; the cut is random.
        steps: number of optimizer steps.
        batch: texts per step.
        rate: constant learning rate.
        seed: random seed.
        optimizer: T5's `adafactor`, whose rates are relative to the weights, or `adamw`.
        held_out: number of held-out texts for the loss before and after training.
        token_budget: most padded tokens of one forward pass; limits memory.
        precision: `bf16` computes in bf16 with weights in fp32.
        device: `cpu`, `cuda`, or `auto`: a GPU if there is one.
        log_every: steps between lines of the log.
        save_every: seconds between saved states.
    """

    corpus: str = "pocket"
    field: str = "doc"
    out: str | None = None
    sentinel: bool = False
    length: int = 512
    steps: int = 10_000
    batch: int = 32
    rate: float = 1e-3
    seed: int = 0
    optimizer: Literal["adafactor", "adamw"] = "adafactor"
    held_out: int = 256
    token_budget: int = 8192
    precision: Literal["fp32", "bf16"] = "bf16"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    log_every: int = 100
    save_every: float = 300.0

    def __post_init__(self) -> None:
        """Check the ranges of the numbers."""
        least = {"steps": 1, "batch": 1, "length": 2, "held_out": 1, "log_every": 1}
        for name, smallest in {**least, "token_budget": 1}.items():
            if getattr(self, name) < smallest:
                raise UserError(f"{name} is {getattr(self, name)}; use {smallest} or more.")
        if self.rate <= 0:
            raise UserError(f"rate is {self.rate}; use more than 0.")


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
