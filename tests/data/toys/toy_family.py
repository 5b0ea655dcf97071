"""A family from outside: OLMo 2, whose layers have their norms after attention and feed-forward."""

from ptrun.backbone.causal import Decoder


def toys() -> Decoder:
    """Return the family of the model type `olmo2`."""
    return Decoder("Olmo2ForCausalLM", name="toys")
