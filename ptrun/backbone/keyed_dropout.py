"""The dropout modules of a backbone: each row is dropped by its own key."""

from torch import Tensor, nn

from ptrun.backbone.injection import Injection


class KeyedDropout(nn.Module):
    """Replaces an `nn.Dropout` of a backbone; uses the keys of the current pass.

    `cut` is True if each rank of a tensor-parallel group has a part of the last axis.
    """

    cut: bool = False

    def __init__(self, p: float, site: int, injection: Injection):
        super().__init__()
        self.p, self.site, self.injection = p, site, injection

    def forward(self, x: Tensor) -> Tensor:
        """Return `x`, `[B, ...]` or packed tokens `[1, N, H]`, with this site's cells dropped."""
        division = self.injection.division if self.cut else None
        origin = -division.first(x.shape[-1]) if division else 0
        return self.injection.drop(x, self.site, self.p, origin)


def install(model: nn.Module, injection: Injection) -> None:
    """Replace every `nn.Dropout` of a model, numbering the sites in module order."""
    sites = [
        (parent, name)
        for parent in model.modules()
        for name, child in parent.named_children()
        if isinstance(child, nn.Dropout)
    ]
    for site, (parent, name) in enumerate(sites):
        dropout = KeyedDropout(getattr(parent, name).p, site, injection)
        dropout.cut = hasattr(parent, "wo")  # T5's feed-forward layer drops its wide states
        setattr(parent, name, dropout)
