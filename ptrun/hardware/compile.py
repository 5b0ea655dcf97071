"""`hardware.compile`: whether element-wise functions are compiled, and when."""

import logging
from typing import Literal

from ptrun.backbone import fused
from ptrun.errors import UserError

_LOG = logging.getLogger(__name__)
Compile = Literal["auto"] | bool
WORTH = 300.0
"""Seconds of training left from which `auto` compiles: on a new machine it takes about 20 s."""
_SLOWER = "cpu"
"""On two CPU cores a step with compiled dropout took 1.04 to 1.25 times as long."""


class Compilation:
    """Compiles at the start, or under `auto` on a GPU once long training is certain.

    Compiled functions return the same bits, so the moment changes no result.

    Raises:
        UserError: `true`, and there is no compiler.
    """

    def __init__(self, requested: Compile, device: str):
        self.device = device
        self.pending = requested == "auto" and device != _SLOWER
        if requested is True and fused.compiler(device) is None:
            raise UserError(
                f"hardware.compile=true: torch finds no compiler for {device}; install g++ (on a "
                "GPU triton, gcc and Python's headers), or type hardware.compile=auto."
            )
        fused.activate(requested is True)

    def consider(self, seconds_left: float) -> None:
        """Compile from the next step on, if the training left takes long enough."""
        if not self.pending or seconds_left < WORTH:
            return
        self.pending = False
        if fused.compiler(self.device) is None:
            _LOG.info("torch finds no compiler: dropout is not compiled")
            return
        fused.activate(True)
        _LOG.info("compiling dropout; hardware.compile=false leaves it out")
