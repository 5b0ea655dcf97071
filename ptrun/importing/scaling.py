"""Undoes the scaling of PPT's converted T5 shards.

Against overflow in fp16 the conversion divided the residual stream by 100: the embeddings, the
outputs of attention, and the feed-forward's, there by 10 twice. The final norms undo it, up to
their epsilon: left as they are, such shards are T5 with an epsilon of 1e-2 instead of 1e-6.
"""

import re

_FACTORS = {
    r"shared\.weight": 100.0,
    r".*\.(SelfAttention|EncDecAttention)\.o\.weight": 100.0,
    r".*\.DenseReluDense\.(wi_1|wo)\.weight": 10.0,
}
PROMPT_FACTOR = 100.0  # a prompt stands among the embeddings


def factor(name: str) -> float:
    """Return what a tensor, by its name in transformers, was divided by."""
    for pattern, value in _FACTORS.items():
        if re.fullmatch(pattern, name):
            return value
    return 1.0
