"""What the engine asks of the loop that runs it: asyncio's event loop, or the simulation's virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from leveret.federation.environment import ScheduledCall


class EventLoop(Protocol):
    """Makes calls one after the other. asyncio.AbstractEventLoop is one; so times are in seconds."""

    def call_soon(self, call: Callable[..., object], /, *arguments: object) -> ScheduledCall:
        """Make a call after this one, and after those that were asked for before."""

    def call_later(self, delay_s: float, call: Callable[..., object], /, *arguments: object) -> ScheduledCall:
        """Make a call when this time has passed."""

    def time(self) -> float:
        """Return the time on the clock that `call_later` uses."""
