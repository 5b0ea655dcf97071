"""A family from outside: OLMo 2, whose layers have their norms after attention and feed-forward."""

from typing import ClassVar

from ptrun.backbone.causal import Decoder
from ptrun.backbone.pretrained import PretrainedBackbone


class ToyBackbone(PretrainedBackbone):
    """A backbone of the model type `olmo2`, in a family of its own."""

    families: ClassVar = {"olmo2": Decoder("Olmo2ForCausalLM", name="toys")}
