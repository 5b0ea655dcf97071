"""Plain torch that asks for ranks, in place of an engine that needs them."""

from dataclasses import dataclass, field

from ptrun.hardware.torch_engine import TorchEngine


@dataclass
class Ranked(TorchEngine):
    """What `hardware=zero1` says of itself, for a world of one."""

    model_parallel: int = field(kw_only=True)
    ranks: int | None = field(kw_only=True, default=None)
