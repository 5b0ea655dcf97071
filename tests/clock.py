"""A clock of one module's own."""

import time
from types import SimpleNamespace


def own_clock(monkeypatch, module, **replaced):
    """Give a module functions of `time` of its own.

    Replaced in `time` itself, they would stop the event loops of other threads: a server that asks
    for the time while it stands still sleeps until it has caught up.
    """
    monkeypatch.setattr(module, "time", SimpleNamespace(**vars(time) | replaced))
