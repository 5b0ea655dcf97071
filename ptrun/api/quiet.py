"""A call from Python leaves its process as it was: no output, same environment and random state."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet() -> Iterator[None]:
    """Show no progress and print nothing; put the environment back.

    Messages go to the logger `ptrun`, whose handlers and level are the caller's.
    """
    logger, handler = logging.getLogger("ptrun"), logging.NullHandler()
    before = dict(os.environ)
    logger.addHandler(handler)  # else Python prints warnings that nobody handles
    try:
        with _no_progress():
            yield
    finally:
        logger.removeHandler(handler)
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update({k: v for k, v in before.items() if os.environ.get(k) != v})


@contextmanager
def _no_progress() -> Iterator[None]:
    """Turn progress bars off: ours, and those of the hub's libraries."""
    from huggingface_hub.utils import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    from ptrun.training.progress import silent

    off = are_progress_bars_disabled()
    if not off:
        disable_progress_bars()
    try:
        with silent():
            yield
    finally:
        if not off:
            enable_progress_bars()


@contextmanager
def same_random() -> Iterator[None]:
    """Put torch's random state back."""
    import torch

    used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices=range(torch.cuda.device_count() if used else 0)):
        yield
