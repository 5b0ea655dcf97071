"""What the modules of a backbone inject in the pass they are in: prefixes, edits, dropout keys."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from torch import Tensor, nn

from ptrun.backbone.base import BackboneInput, Prefix, Site
from ptrun.backbone.dropout import Slot


class Injection(Slot):
    """The input of the current pass, where attention, dropout and hooks can see it."""

    given: BackboneInput | None = None

    def prefix(self, layer: int) -> Prefix | None:
        """Return the prefix of a layer, if it has one."""
        prefixes = self.given.prefixes if self.given else None
        return prefixes[layer] if prefixes else None

    def edited(self, site: Site, hidden: Tensor) -> Tensor:
        """Return hidden states as the edit of a site leaves them."""
        edits = self.given.edits if self.given else None
        return edits[site](hidden) if edits and site in edits else hidden

    @contextmanager
    def of(self, given: BackboneInput) -> Iterator[None]:
        """Inject what an input says, for the length of a pass."""
        before = self.given
        self.given, self.keys = given, given.keys
        try:
            yield
        finally:
            self.given = before
            self.keys = before.keys if before else None

    def replay(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """Return contexts for a checkpointed forward and for its recomputation in the backward."""
        return nullcontext(), self.of(self.given) if self.given else nullcontext()


def hook(module: nn.Module, injection: Injection, site: Site) -> None:
    """Let a site's edit act on what a module puts out."""

    def edit(_module: nn.Module, _arguments: object, output: Tensor) -> Tensor:
        return injection.edited(site, output)

    module.register_forward_hook(edit)


def connect(module: nn.Module, injection: Injection, layer: int) -> None:
    """Tell an attention module whose prefixes it reads. A plain attribute, not a submodule."""
    object.__setattr__(module, "ptrun_injection", (injection, layer))
