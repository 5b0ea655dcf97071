"""A soft prompt and LoRA in one run, each with its learning rate.

The vectors stand before the text, and the updates change all positions. LoRA starts at zero, so
training starts from prompt tuning.
"""

from typing import Any

from ptrun.method.base import rates
from ptrun.method.lora import LoRA
from ptrun.method.prompt_tuning import PromptTuning


class PromptLoRA(LoRA, PromptTuning):
    """Vectors `[P, E]` before the text, and low-rank maps beside projections.

    Args:
        length: P, in vectors.
        rank, alpha, dropout, targets: those of `ptrun.method.lora.LoRA`.
        lora_lr: learning rate of the low-rank maps; None is that of the vectors.

    >>> from ptrun.testing import read
    >>> method, batch, output = read("method=prompt_lora", "method.length=5", "method.rank=2")
    >>> inputs = method.inputs(batch)
    >>> inputs.embeddings.shape, len(inputs.updates[0].maps)  # [B, P + T, E]
    (torch.Size([2, 31, 128]), 8)
    """

    may_differ = (*LoRA.may_differ, "length", "lora_lr")

    def __init__(
        self,
        *run: Any,
        length: int,
        rank: int = 8,
        alpha: float = 16,
        dropout: float = 0.0,
        targets: list[str] | None = None,
        lora_lr: float | None = None,
    ):
        PromptTuning.__init__(self, *run, length=length)
        self.adapt(rank, alpha, dropout, targets)
        self.prompt.lora = self.lora  # so that a start from another run takes both
        self.rates = rates("lora_lr", lora_lr, "prompt.lora.")
