"""What can go wrong with a hub, and the sentence that says it."""

import re

from tests.hub.server import Fault, Hub

FAULTS = {
    "500": (Fault(".", status=500), "the download failed (", "again later"),
    "401": (Fault(".", status=401, code="GatedRepo"), "(401); the owner of a gated", "HF_TOKEN"),
    "403": (Fault(".", status=403), "refuses access (403)", "`hf auth login`, or set HF_TOKEN"),
    "closed": (Fault(".", action="close"), "disconnected without sending", "again later"),
    "silent": (Fault(".", action="stall"), "timed out", "HF_HUB_DOWNLOAD_TIMEOUT=1"),
}


def break_(hub: Hub, name: str) -> tuple[str, str]:
    """Let every request fail; return what the error says: what happened, and what to do."""
    fault, happened, remedy = FAULTS[name]
    hub.faults = [Fault(**vars(fault))]
    return happened, remedy


def check(message: str, *parts: str) -> None:
    """Check an error: it holds these parts, is short, and no word or bracket is cut."""
    for part in parts:
        assert part in message, message
    assert len(message.splitlines()) == 2 and "Traceback" not in message
    assert message.count("(") == message.count(")")
    assert all(re.search(r"[.)]$|\.\S+$", line) for line in message.splitlines()), message
