"""One tensor of a model, and its place in a checkpoint of one or more parts.

Query, key and value are often fused, and the fused tensor is split over the parts after the
fusion: a part holds its queries, its keys and its values, one below the other. So each part's
tensor is cut into pieces first, and then the pieces of all parts are joined.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """One tensor of the model.

    Args:
        name: name in the model.
        source: name in the checkpoint.
        shape: shape in the checkpoint, with all parts and the wanted pieces joined.
        axis: axis along which the parts are joined; None if every part holds the whole tensor.
        pieces: number of equal pieces of a part's tensor, along the first axis.
        piece: index of the wanted piece; None for all of them, one below the other.
        transposed: whether the model holds the transposed tensor.
    """

    name: str
    source: str
    shape: tuple[int, ...]
    axis: int | None = None
    pieces: int = 1
    piece: int | None = None
    transposed: bool = False

    @property
    def model_shape(self) -> tuple[int, ...]:
        """The shape in the model."""
        return self.shape[::-1] if self.transposed else self.shape

    @property
    def saved_shape(self) -> tuple[int, ...]:
        """The shape in the checkpoint, all pieces together."""
        rows = self.shape[0] * (1 if self.piece is None else self.pieces)
        return (rows, *self.shape[1:])
