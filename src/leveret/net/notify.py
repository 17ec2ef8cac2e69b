"""What systemd is told (sd_notify(3)): ready, reloading, stopping, how things are, and that the loop turns.

Without $NOTIFY_SOCKET nothing is told to nobody. The watchdog's signs of life come from the event loop, so a broker
whose loop hangs is killed and started again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import MutableMapping
from typing import Final

# of the time within which systemd wants a sign of life; its manual says half, and a late one must not be too late
SHARE: Final = 1 / 3


class Notifier:
    """One for the process. Its variables are taken away, so that no child speaks in our name."""

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        path = environment.pop("NOTIFY_SOCKET", "")
        period_us, pid = environment.pop("WATCHDOG_USEC", ""), environment.pop("WATCHDOG_PID", "")
        # "@" is the abstract name space, which the kernel writes as a zero octet
        self._address = "\0" + path[1:] if path.startswith("@") else path
        is_ours = not pid or pid == str(os.getpid())
        self._interval_s = int(period_us) * SHARE / 1e6 if is_ours and period_us.isdecimal() else 0.0

    def ready(self, status: str) -> None:
        """Clients can connect; again after a reload."""
        self.tell("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """The settings are read again; `ready` follows."""
        self.tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """The end has begun."""
        self.tell("STOPPING=1", "STATUS=stopping")

    def status(self, text: str) -> None:
        """A line for `systemctl status`."""
        self.tell(f"STATUS={text}")

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Give signs of life for as long as this loop turns."""
        if self._address and self._interval_s:
            self.tell("WATCHDOG=1")
            loop.call_later(self._interval_s, self.watch, loop)

    def tell(self, *assignments: str) -> None:
        """One datagram. Nobody who listens is no error: the broker is not there for systemd."""
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            line.setblocking(False)
            line.sendto("\n".join(assignments).encode(), self._address)
