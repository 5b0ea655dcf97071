"""What the host starts on the disguised device."""

from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.nn import functional

from ptrun.backbone import launch
from ptrun.backbone.kernel import Launch
from tests.cuda import disguise

aten = torch.ops.aten
_FREE = {aten.empty, aten.empty_like, aten.empty_strided, aten.new_empty, aten._unsafe_view}
_FREE |= {aten.new_empty_strided, aten.lift_fresh, aten._local_scalar_dense}


@contextmanager
def launches(*, free: Container[Any] = _FREE) -> Iterator[list[str]]:
    """Yield the names of what is started: ops but views and `free` ones, and whole kernels."""
    started: list[str] = []
    dispatch = disguise.dispatch

    def counted(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        result = dispatch(func, args, kwargs)
        there = [isinstance(t, disguise.Disguised) for t in disguise._tensors([result, *args])]
        if any(there) and not func.is_view and func.overloadpacket not in free:
            started.append(str(func))
        return result

    def whole(kernel: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            before = len(started)
            result = kernel(*args, **kwargs)
            started[before:] = ["kernel"]
            return result

        return run

    name = "scaled_dot_product_attention"
    with (
        patch.object(disguise, "dispatch", counted),
        patch.object(Launch, "_run", whole(Launch._run)),
        patch.object(launch, "start", whole(launch.start)),
        patch.object(functional, name, whole(getattr(functional, name))),
    ):
        yield started
