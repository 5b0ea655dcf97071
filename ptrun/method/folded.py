"""Methods whose prompt comes from an encoder: only the encoder's output is exported."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from ptrun.errors import UserError
from ptrun.method.base import Method
from ptrun.prompt.encoder import PromptEncoder
from ptrun.prompt.prefix import DeepPrefix

_PROMPT, _TABLE = "prompt.", "prompt.table"


class Folded(Method):
    """A method whose `prompt` folds into the tensor `finished`; errors name the method `paper`."""

    finished: ClassVar[str]
    paper: ClassVar[str]
    prompt: DeepPrefix | PromptEncoder

    def exported(self) -> dict[str, Tensor]:
        """Return the finished prompt and all other tensors, without the encoder."""
        others = {k: v for k, v in super().exported().items() if not k.startswith(_PROMPT)}
        return {self.finished: self.prompt().detach(), **others}

    def load_exported(self, tensors: dict[str, Tensor]) -> None:
        """Load a finished prompt and all other tensors.

        Raises:
            UserError: a tensor is missing.
        """
        if self.finished not in tensors:
            raise UserError(
                f"the saved prompt has no tensor {self.finished}; it is not a prompt of "
                f"{self.paper}."
            )
        self.prompt.fold(tensors[self.finished].to(self.prompt.table.device))
        prompt = {k: v.detach() for k, v in self.learned().items() if k.startswith(_PROMPT)}
        super().load_exported(prompt | tensors)

    def unfolded(self, exported: Mapping[str, Tensor]) -> Mapping[str, Tensor] | None:
        """Return the table if it is the prompt itself, else None."""
        if self.prompt.mlp is not None or getattr(self.prompt, "project", None) is not None:
            return None
        others = {n: t for n, t in exported.items() if n != self.finished}
        finished = exported.get(self.finished)
        return others if finished is None else {_TABLE: finished.flatten(1), **others}
