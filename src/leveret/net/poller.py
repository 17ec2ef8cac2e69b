"""What the loop waits with: epoll, which is asked again and again for a short while before the thread goes to sleep.

A processor that sleeps takes 20 to 50 µs to wake up on a virtual machine, several times what a message takes. So while
the waits are short, as they are between a request and its reply, it stays awake. Erlang's schedulers do the same for
RabbitMQ ("busy waiting"). Who has waited longer sleeps at once, and so does an idle broker.

Between two questions the processor is offered to others. Programs that compute keep it for milliseconds: then there is
none to spare, and whoever sleeps gets it back sooner than who offers it (sched_yield(2)). So there are no questions for
a while.
"""

from __future__ import annotations

import os
import selectors
import time
from typing import Final

# a wait of more than so many times the limit says that the next one will not be short, either
PATIENCE: Final = 1.5
# this many short waits in a row say that the next one will be short; one or two come by chance
SHORT_WAITS_MIN: Final = 4
# one of them is the client's
PROCESSORS_MIN: Final = 2
# clients and the kernel need the processor for less
KEPT_S_MAX: Final = 0.001
# once, it may have been the machine below a virtual one
KEPT_MIN: Final = 2
# for this many times as long as it was kept nothing is asked, one second at most: to try again costs a fiftieth of the
# time
PAUSE: Final = 50
PAUSE_S_MAX: Final = 1.0


class Poller(selectors.EpollSelector):
    """A selector for asyncio. busy_poll_us: how long a wait may be spent asking; never with a single processor.

    found: how many were ready at the last question; 0 after one that did not wait says that nobody waits.
    rests: set while another thread works for the loop, and would have to wait for the interpreter between questions.
    yields: set while the kernel works for it, and may need this very processor.
    """

    def __init__(self, busy_poll_us: int = 0) -> None:
        super().__init__()
        self.found = 0
        self.rests = self.yields = False
        self._limit_s = busy_poll_us / 1e6 if len(os.sched_getaffinity(0)) >= PROCESSORS_MIN else 0.0
        self._short_waits = 0  # in a row, up to now
        self._kept = 0  # so often in a row the processor was kept
        self._sleeps_until_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Who is ready; nobody after `timeout` seconds, None = as long as it takes."""
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
                os.sched_yield()  # a client may want this very processor
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
