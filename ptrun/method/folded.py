"""What methods share whose prompt comes out of an encoder: only what it made is kept."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from ptrun.errors import UserError
from ptrun.method.base import Method
from ptrun.prompt.encoder import PromptEncoder
from ptrun.prompt.prefix import DeepPrefix

_PROMPT, _TABLE = "prompt.", "prompt.table"


class Folded(Method):
    """A method with a `prompt` that folds; `finished` names what it made, `paper` whose that is."""

    finished: ClassVar[str]
    paper: ClassVar[str]
    prompt: DeepPrefix | PromptEncoder

    def exported(self) -> dict[str, Tensor]:
        """Return the finished prompt and all else; the encoder that made it is dropped."""
        kept = {k: v for k, v in super().exported().items() if not k.startswith(_PROMPT)}
        return {self.finished: self.prompt().detach(), **kept}

    def load_exported(self, tensors: dict[str, Tensor]) -> None:
        """Take a finished prompt and all else back.

        Raises:
            UserError: a tensor is missing.
        """
        if self.finished not in tensors:
            raise UserError(
                f"the saved prompt has no tensor {self.finished}; it is not {self.paper}'s."
            )
        self.prompt.fold(tensors[self.finished].to(self.prompt.table.device))
        own = {k: v.detach() for k, v in self.learned().items() if k.startswith(_PROMPT)}
        super().load_exported(own | tensors)

    def unfolded(self, exported: Mapping[str, Tensor]) -> Mapping[str, Tensor] | None:
        """Return the table, if it is the prompt itself."""
        if self.prompt.mlp is not None or getattr(self.prompt, "project", None) is not None:
            return None
        rest = {n: t for n, t in exported.items() if n != self.finished}
        made = exported.get(self.finished)
        return rest if made is None else {_TABLE: made.flatten(1), **rest}
