"""Example: learned keys and values before those of every layer; the backbone is frozen.

Change the parameters and `inputs` to what your method does.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import nn

from ptrun.backbone.base import BackboneInput, Prefix
from ptrun.method.base import Method
from ptrun.readout.base import Batch


class ExampleMethod(Method):
    """A prefix of P keys and values in each of L layers, and a read-out.

    Args:
        length: P.
        scale: standard deviation of its random start.
    """

    # What `inputs` needs of a backbone: fields of `ptrun.backbone.family.Family`, each with words
    # for it, such as {"encoder": "an encoder"}. Without this line it works with all.
    needs: ClassVar[Mapping[str, str]] = {}
    prefixes = True  # it adds keys and values, which some backbones cannot take

    # `run` is what `Method` takes: backbone, task and read-out. Each parameter after it is an
    # option, typed as method.length=4.
    def __init__(self, *run: Any, length: int = 8, scale: float = 0.02):
        super().__init__(*run)
        shape = self.backbone.shape
        size = (shape.layers, 2, shape.heads, length, shape.head_size)
        # Every nn.Parameter of this class is trained, counted as the prompt and saved.
        self.prefix = nn.Parameter(torch.randn(size) * scale)

    def inputs(self, batch: Batch) -> BackboneInput:
        """Return what the backbone reads: the text, with a prefix `[B, heads, P, d]` in each layer.

        Other places to add something are `embeddings` instead of ids, `[B, T, E]` from
        `self.backbone.embed(batch.ids)`, and `edits` of hidden states.
        """
        text = super().inputs(batch)
        weight = self.backbone.model.get_input_embeddings().weight
        rows = self.prefix.to(weight.dtype).unsqueeze(2).expand(-1, -1, len(batch), -1, -1, -1)
        return replace(text, prefixes=tuple(Prefix(key, value) for key, value in rows))
