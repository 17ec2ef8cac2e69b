"""Attempts to log in: how many there were, and how long those wait whose address has failed again and again.

The wait comes before the password is looked at and is the same for a right one, so who guesses learns nothing by not
waiting for the answer. Attempts of one address wait in line, so guessing on many connections is no faster.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final

# so many failures in a row cost nothing
FREE: Final = 8
STEP_US: Final = 250_000
STEP_US_MAX: Final = 4_000_000
# who would have to wait for longer is refused at once, unlooked at
WAIT_US_MAX: Final = 8_000_000
# an address that has not failed for so long begins anew
FORGET_US: Final = 60_000_000
ADDRESSES_MAX: Final = 4096


class _Failures:
    """Of one address. count: in a row; last_us: when it failed last; next_us: when its next attempt is looked at."""

    def __init__(self) -> None:
        self.count = 0
        self.last_us = 0
        self.next_us = 0

    @property
    def step_us(self) -> int:
        excess = self.count - FREE
        return 0 if excess < 0 else min(STEP_US << min(excess, 8), STEP_US_MAX)


class Attempts:
    """succeeded, failed: how many there were, by protocol ("amqp091", "http")."""

    def __init__(self) -> None:
        self.succeeded: dict[str, int] = {}
        self.failed: dict[str, int] = {}
        self._failures: dict[str, _Failures] = {}

    def wait_us(self, address: str, now_us: int) -> int:
        """How long an attempt from this address, which is made now, must wait; -1 if it is to be refused unseen."""
        failures = self._failures.get(network(address))
        if failures is None or failures.step_us == 0 or now_us - failures.last_us > FORGET_US:
            return 0
        due_us = max(now_us, failures.next_us)
        if due_us - now_us > WAIT_US_MAX:
            return -1
        failures.next_us = due_us + failures.step_us
        return due_us - now_us

    def done(self, address: str, protocol: str, is_right: bool, now_us: int) -> None:
        """An attempt has succeeded or failed."""
        counts = self.succeeded if is_right else self.failed
        counts[protocol] = counts.get(protocol, 0) + 1
        where = network(address)
        failures = self._failures.pop(where, None)
        if is_right:
            return
        if failures is None or now_us - failures.last_us > FORGET_US:
            failures = _Failures()
        failures.count += 1
        failures.last_us = now_us
        failures.next_us = max(failures.next_us, now_us + failures.step_us)
        self._failures[where] = failures  # at the end: the one that failed longest ago is forgotten first
        if len(self._failures) > ADDRESSES_MAX:
            del self._failures[next(iter(self._failures))]

    def reset(self) -> None:
        """Count from zero; who has to wait still has to."""
        self.succeeded.clear()
        self.failed.clear()


def network(address: str) -> str:
    """What one machine may have many addresses of: a /64 of IPv6. address: an IP address, or any other name."""
    if ":" not in address:
        return address
    try:
        return ip_address(address.partition("%")[0]).exploded[:19]
    except ValueError:
        return address
