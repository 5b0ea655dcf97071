"""The names and addresses by which clients may call `ptrun serve`."""

import shlex
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_address
from typing import NamedTuple

LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Hosts(NamedTuple):
    """The names that a Host or an Origin may have, and whether any literal address is served.

    A page of somebody else may have renamed itself to this machine, but it always sends a name.
    """

    names: tuple[str, ...] = LOOPBACK
    addresses: bool = False

    def refusal(self, path: str, headers: Mapping[str, str]) -> str | None:
        """Return why a request is refused, if it is; probes may come by any address."""
        name, origin = named(headers.get("host", "")), named(headers.get("origin", ""))
        probe = self.addresses or path in ("/health", "/metrics")
        for key, value, served in (
            ("Host", name, name in self.names or (probe and (not name or is_address(name)))),
            ("Origin", origin, not origin or origin in (*self.names, name)),
        ):
            if not served:
                more = f"; if it is, start it with --name {shlex.quote(value)}"
                more = "" if value in ("", "null") else more
                return f"{key} {value or 'is missing, which'} is not a name of this server{more}."
        return None


def named(host: str) -> str:
    """Return the name or address in a Host, an Origin or an option, without port and brackets."""
    name = host.lower().rpartition("://")[2][:80]
    if name.startswith("["):
        name = name[1:].partition("]")[0]
    elif name.count(":") == 1:
        name = name.partition(":")[0]
    with suppress(ValueError):
        name = str(ip_address(name))
    return name


def is_address(name: str) -> bool:
    """Whether a name is a literal IPv4 or IPv6 address."""
    with suppress(ValueError):
        return bool(ip_address(name))
    return False
