"""GLM-2B and GLM-10B: GPT-2's stack with a second table of positions (Du et al. 2022, §2).

The name is that of the authors' files; `glm` in transformers is another model (GLM-4). Token t of
the context has the positions (t, 0). Token j = 1, 2, ... of the answer has (position of the blank,
j). The caller passes a mask `[B, 1, T, S]`, which GPT-2 uses unchanged.
"""

from typing import Any

from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel


class BlockConfig(GPT2Config):  # type: ignore[misc]
    """GPT-2's configuration under another name."""

    model_type = "blocklm"


class BlockLM(GPT2LMHeadModel):  # type: ignore[misc]
    """GPT-2 with a second position table `transformer.wbe [positions, H]`, for the answer."""

    config_class = BlockConfig

    def __init__(self, config: BlockConfig):
        super().__init__(config)
        self.transformer.wbe = nn.Embedding(config.n_positions, config.n_embd)
        nn.init.normal_(self.transformer.wbe.weight, std=config.initializer_range)

    def hidden(self, embeddings: Tensor, places: Tensor, inside: Tensor, **rest: Any) -> Any:
        """Return the output of GPT-2's body.

        Args:
            embeddings: `[B, T, H]` raw word embeddings.
            places: `[B, T]` positions in the text.
            inside: `[B, T]` positions inside the answer, 0 for the context.
            rest: `attention_mask`, `past_key_values`, `use_cache`, as for GPT-2.
        """
        whole = embeddings + self.transformer.wbe(inside)
        return self.transformer(inputs_embeds=whole, position_ids=places, **rest)
