"""Connections of `ptrun serve`: a request that does not come ends its connection."""

import asyncio
import logging
import resource
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

_LOG = logging.getLogger(__name__)
SECONDS = 15.0
"""For the first line and the headers of a request."""
_KEPT = 40  # descriptors for files, models and the loop


class TimedProtocol(H11Protocol):
    """uvicorn's protocol with a limit on how long headers may take, and on connections."""

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request; too many connections are closed at once."""
        super().connection_made(transport)
        self._late: asyncio.TimerHandle | None = None
        most = max(8, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _KEPT)
        if len(self.connections) > most:  # else no client could be accepted
            _LOG.warning("more than %d connections; further ones are closed", most)
            transport.abort()
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Read what came, and wait on if it is no whole request."""
        super().data_received(data)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        super().connection_lost(exc)
        self._stop()

    def _wait(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop()
        elif self._late is None:
            self._late = self.loop.call_later(SECONDS, self._end)

    def _stop(self) -> None:
        if self._late is not None:
            self._late.cancel()
        self._late = None

    def _end(self) -> None:  # while a request is answered, this timer is stopped
        self.transport.close()
