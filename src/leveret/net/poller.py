"""The loop's selector: epoll, which is polled for a short while before the thread sleeps.

On a virtual machine a sleeping processor takes 20 to 50 µs to wake up, several times what a message takes. So while
waits are short, as they are between a request and its reply, it stays awake. Erlang's schedulers do the same for
RabbitMQ ("busy waiting"). After a longer wait the thread sleeps at once, and so does an idle broker.

Between two polls the processor is offered to other threads. Programs that compute keep it for milliseconds; then no
processor is to spare, and a thread that sleeps gets it back sooner than one that offers it (sched_yield(2)). So polling
pauses for a while.
"""

from __future__ import annotations

import os
import selectors
import time
from typing import Final

# after a wait of more than this many times the limit, the next one will not be short, either
PATIENCE: Final = 1.5
# after this many short waits in a row the next one will be short; one or two occur by chance
SHORT_WAITS_MIN: Final = 4
# one of them is for the client
PROCESSORS_MIN: Final = 2
# clients and the kernel need the processor for less than this
KEPT_S_MAX: Final = 0.001
# a single long pause may have been the hypervisor
KEPT_MIN: Final = 2
# polling pauses for this many times as long as the processor was kept, one second at most: trying again costs a
# fiftieth of the time
PAUSE: Final = 50
PAUSE_S_MAX: Final = 1.0


class Poller(selectors.EpollSelector):
    """A selector for asyncio. busy_poll_us: how long a wait may be spent polling; never with a single processor."""

    def __init__(self, busy_poll_us: int = 0) -> None:
        super().__init__()
        # how many were ready at the last poll; 0 after a poll without a wait says that nothing else is to be read
        self.found = 0
        # rests: set while another thread works for the loop, and would have to wait for the interpreter between polls;
        # yields: set while the kernel works for the loop, and may need this very processor
        self.rests = self.yields = False
        self._limit_s = busy_poll_us / 1e6 if len(os.sched_getaffinity(0)) >= PROCESSORS_MIN else 0.0
        self._short_waits = 0  # how many waits in a row have been short
        self._kept = 0  # how many times in a row another thread kept the processor
        self._sleeps_until_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait until something is ready, `timeout` seconds at most, None = without limit; returns what is ready."""
        if timeout is not None and timeout <= 0:
            if self.yields:
                os.sched_yield()
            ready = super().select(0)
        elif not self._limit_s:
            ready = super().select(timeout)
        else:
            ready = self._wait(timeout)
        self.found = len(ready)
        return ready

    def _wait(self, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        began_s = time.perf_counter()
        ready: list[tuple[selectors.SelectorKey, int]] = []
        if self._short_waits >= SHORT_WAITS_MIN and not self.rests and began_s >= self._sleeps_until_s:
            now_s = began_s
            until_s = began_s + (self._limit_s if timeout is None else min(self._limit_s, timeout))
            while not ready and now_s < until_s:
                os.sched_yield()  # a client may need this very processor
                ready = super().select(0)
                now_s = time.perf_counter()
            self._kept = self._kept + 1 if now_s - until_s > KEPT_S_MAX else 0
            if self._kept >= KEPT_MIN:
                self._sleeps_until_s = now_s + min((now_s - until_s) * PAUSE, PAUSE_S_MAX)
        if not ready:
            ready = super().select(timeout)
        is_short = time.perf_counter() - began_s < self._limit_s * PATIENCE
        self._short_waits = self._short_waits + 1 if is_short else 0
        return ready
