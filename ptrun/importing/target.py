"""One tensor of the model that is made, and where it is in a checkpoint of one part or more.

Query, key and value are often fused, and the fused tensor was split over the parts after the
fusion: a part holds its queries, its keys, its values, one below the other. So each part's tensor
is cut into pieces first, and only then are the parts' pieces put together.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """One tensor of the model.

    Args:
        name: its name there; `source`: its name in the checkpoint.
        shape: whole and as the checkpoint has it, all parts and the wanted pieces together.
        axis: where the parts are joined; None if every part holds all of it.
        pieces: how many equal pieces a part's tensor has, along the first axis.
        piece: which one is wanted; None for all of them, one below the other.
        transposed: whether the model holds it the other way round.
    """

    name: str
    source: str
    shape: tuple[int, ...]
    axis: int | None = None
    pieces: int = 1
    piece: int | None = None
    transposed: bool = False

    @property
    def made(self) -> tuple[int, ...]:
        """The shape in the model."""
        return self.shape[::-1] if self.transposed else self.shape

    @property
    def held(self) -> tuple[int, ...]:
        """The shape in the checkpoint, all pieces together."""
        rows = self.shape[0] * (1 if self.piece is None else self.pieces)
        return (rows, *self.shape[1:])
