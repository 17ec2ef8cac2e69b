"""Messages to systemd (sd_notify(3)): ready, reloading, stopping, a status line, and the watchdog's signs of life.

Without $NOTIFY_SOCKET nothing is sent. The watchdog's signs of life come from the event loop, so a broker whose loop
hangs is killed and restarted.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import MutableMapping
from typing import Final

# how much of the time within which systemd expects a sign of life; its manual says half, but a late sign must not be
# too late
SHARE: Final = 1 / 3


class Notifier:
    """Sends systemd's messages. Removes its variables from the environment, so that no child process sends in our name.
    """

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        path = environment.pop("NOTIFY_SOCKET", "")
        period_us, pid = environment.pop("WATCHDOG_USEC", ""), environment.pop("WATCHDOG_PID", "")
        # "@" stands for the abstract name space, which the kernel writes as a zero byte
        self._address = "\0" + path[1:] if path.startswith("@") else path
        is_ours = not pid or pid == str(os.getpid())
        self._interval_s = int(period_us) * SHARE / 1e6 if is_ours and period_us.isdecimal() else 0.0

    def ready(self, status: str) -> None:
        """Report that clients can connect; again after a reload."""
        self.tell("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """Report that the settings are being read again; `ready` follows."""
        self.tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Report that the stop has begun."""
        self.tell("STOPPING=1", "STATUS=stopping")

    def status(self, text: str) -> None:
        """Set the line that `systemctl status` shows."""
        self.tell(f"STATUS={text}")

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Send signs of life for as long as this loop runs."""
        if self._address and self._interval_s:
            self.tell("WATCHDOG=1")
            loop.call_later(self._interval_s, self.watch, loop)

    def tell(self, *assignments: str) -> None:
        """Send one datagram. Errors are ignored, as the broker does not depend on systemd."""
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            line.setblocking(False)
            line.sendto("\n".join(assignments).encode(), self._address)
