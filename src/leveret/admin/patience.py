"""Connections that hold a place and ask for nothing are closed: uvicorn by itself would wait for ever."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle


class Patient(H11Protocol):
    """HTTP/1.1 with an end to waiting for a request: after one to two periods without a new one, or part of one."""

    period_s: ClassVar[float] = 30.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        self._seen: RequestResponseCycle | None = None
        self._look_later()

    def connection_lost(self, exc: Exception | None) -> None:
        self._next_look.cancel()
        super().connection_lost(exc)

    def _look_later(self) -> None:
        self._next_look = asyncio.get_running_loop().call_later(self.period_s, self._look)

    def _look(self) -> None:
        cycle: Any = self.cycle  # of the last request; None: there was none
        if cycle is self._seen and (cycle is None or cycle.response_complete):
            self.transport.abort()
            return
        self._seen = cycle
        self._look_later()
