"""A text model with an output head, where transformers has a head for text and images alone."""

from functools import cache
from typing import Any, ClassVar

import transformers
from torch import Tensor, nn
from transformers import GenerationMixin
from transformers.modeling_outputs import CausalLMOutputWithPast


@cache
def library_class(name: str) -> Any:
    """Return a class of transformers; with `WithHead` after its name, a head is added to it."""
    body: Any = getattr(transformers, name.removesuffix("WithHead"))
    if not name.endswith("WithHead"):
        return body
    parent: Any = body.__bases__[0]

    class Headed(parent, GenerationMixin):  # type: ignore[misc]
        config_class = body.config_class
        base_model_prefix = "model"
        _tied_weights_keys: ClassVar = {"lm_head.weight": "model.embed_tokens.weight"}

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.model = body(config)
            self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
            self.post_init()

        def forward(
            self,
            input_ids: Tensor | None = None,
            position_ids: Tensor | None = None,
            logits_to_keep: int = 0,
            **more: Any,
        ) -> CausalLMOutputWithPast:
            output = self.model(input_ids, position_ids=position_ids, **more)
            logits = self.lm_head(output[0][:, -logits_to_keep:])
            return CausalLMOutputWithPast(logits=logits, past_key_values=output.past_key_values)

    Headed.__name__ = name
    return Headed
