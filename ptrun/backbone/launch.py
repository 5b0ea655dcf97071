"""Start Triton's programs: on which tensors they run, and whether a device computes them right."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

_LOG = logging.getLogger(__name__)
TYPES = (torch.float32, torch.bfloat16, torch.float16)
_forced: bool | None = None


@contextmanager
def use(on: bool) -> Iterator[None]:
    """Compute by Triton's programs on any device, or nowhere: for tests and benchmarks.

    On a CPU they need Triton's interpreter (TRITON_INTERPRET=1). On the meta device nothing runs.
    """
    global _forced
    before, _forced = _forced, on
    try:
        yield
    finally:
        _forced = before


def chosen(x: Tensor) -> bool:
    """Return whether programs may compute with a tensor: on CUDA, unless `use` says otherwise."""
    return (x.is_cuda if _forced is None else _forced) and x.dtype in TYPES


def start(
    name: str, programs: int, arguments: dict[str, Any], device: torch.device,
    warps: int = 4, stages: int = 2,
) -> None:  # fmt: skip
    """Start so many programs of `kernel_programs.NAME`; `arguments` may have more than it takes.

    Triton is imported at the first start. On the meta device nothing starts, so memory is planned
    without Triton.
    """
    if device.type == "meta" or not programs:
        return
    from ptrun.backbone import kernel_programs

    program = getattr(kernel_programs, name)
    options = {"num_warps": warps, "num_stages": stages}
    options |= {"enable_fp_fusion": True, "sanitize_overflow": False}  # hashes overflow
    # Triton starts programs on the current device
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        program[(programs,)](**{n: arguments[n] for n in program.arg_names}, **options)


@cache
def agrees(what: str, distance: Callable[..., float], device: torch.device, *facts: Any) -> bool:
    """Return whether a device computes as torch does, and say so if not.

    `distance` takes the device and the facts; 1 is allowed.
    """
    if find_spec("triton") is None:
        _LOG.info("triton is not installed: plain %s is used", what)
        return False
    _LOG.info("checking the kernel of %s on %s; Triton compiles it the first time", what, device)
    # activation checkpointing does not count tensors that are saved here
    unseen = saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)
    with torch.enable_grad(), torch.autocast(device.type, enabled=False), unseen:
        try:
            far = distance(device, *facts)
        except Exception as failed:  # Triton, its compiler and the driver share no error class
            _LOG.warning("plain %s is used; its kernel fails on %s: %s", what, device, failed)
            return False
    if not far <= 1:  # nan too
        _LOG.warning("plain %s is used; its kernel is wrong on %s: %g", what, device, far)
    return far <= 1
