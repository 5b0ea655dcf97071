"""One process with the disguised device: patches in place, parts of a run told apart."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cuda import device

SITE = Path(__file__).parent / "site"


def environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which every Python process has the device."""
    before = [env["PYTHONPATH"]] if "PYTHONPATH" in env else []
    paths = [str(SITE), str(SITE.parents[2]), *before]
    return {**env, "PTRUN_TEST_CUDA": "1", "PYTHONPATH": os.pathsep.join(paths)}


def begin() -> None:
    """Give this process the device from its start to its end.

    PTRUN_TEST_FAIL has errors by part of a run, `PART=TEXT|PART=TEXT`.
    """
    start()
    from tests.cuda.disguise import Device
    from tests.cuda.events import EVENTS

    for entry in filter(None, os.environ.get("PTRUN_TEST_FAIL", "").split("|")):
        part, _, text = entry.partition("=")
        EVENTS.fail[part] = text
    Device().__enter__()


def start() -> None:
    """Load the device and patch torch; call it before torch is imported."""
    os.environ["HF_DEACTIVATE_ASYNC_LOAD"] = "1"  # a dispatch mode holds in one thread
    device.load()
    import torch

    from tests.cuda import driver, graphs, kernels

    torch.set_num_threads(1)  # the ops are tiny, and tests share the cores
    torch.autograd.set_multithreading_enabled(False)
    torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(..., device="cuda") becomes a copy
    torch.__future__.set_swap_module_params_on_conversion(True)
    driver.install()
    kernels.install()
    graphs.install()
    _tell_parts_apart()


@contextmanager
def on_device() -> Iterator[None]:
    from tests.cuda.disguise import Device

    with Device():
        yield


def _tell_parts_apart() -> None:
    """Count events by the part of a run that they happen in."""
    from ptrun.hardware.torch_engine import TorchEngine
    from ptrun.training.member import Member

    for owner, method, part in (
        (TorchEngine, "load", "load"),
        (TorchEngine, "place", "place"),
        (TorchEngine, "_prepare", "prepare"),
        (TorchEngine, "evaluate", "evaluate"),
        (TorchEngine, "_step", "step"),
        (TorchEngine, "_accumulate", "passes"),
        (Member, "send", "update"),
        (Member, "update", "update"),
    ):
        _within(owner, method, part)
    _keep_learned_in_place()


def _within(owner: Any, method: str, part: str) -> None:
    from tests.cuda.events import EVENTS

    first = getattr(owner, method)

    def outer(self: Any, *args: Any, **kwargs: Any) -> Any:
        with EVENTS.within(part):
            return first(self, *args, **kwargs)

    setattr(owner, method, outer)


def _keep_learned_in_place() -> None:
    """DeepSpeed moves parameters that are there already, which a disguise cannot."""
    from ptrun.hardware.deepspeed_engine import Learned

    Learned.to = lambda self, *_, **__: self  # type: ignore[method-assign,assignment]
