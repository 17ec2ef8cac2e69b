"""Counts login attempts, and says how long the next one waits after failures.

Failures are counted per address and user, so guessing one user's password delays no other user, not even from the same
address. Each address also has an allowance of failures over all users, which refills with time: it stops trying one
password with many names, and does not delay a user who has logged in from that address before. The wait comes before
the password is checked, and is the same for a correct password and for users that do not exist, so an early answer
reveals nothing. Attempts wait in one queue, so opening more connections does not speed up guessing. An attempt that is
refused without a check reveals nothing about the password, and does not count.

Guessing cannot empty these tables: to push an entry out takes as many failures, or addresses, as a table has room for,
and an address fails no more than FREE_OF_ADDRESS times and once in STEP_OF_ADDRESS_US within FORGET_US.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final

# number of failures in a row, of one user, without a wait
FREE: Final = 8
STEP_US: Final = 250_000
STEP_US_MAX: Final = 4_000_000
# number of failures of an address, over all users, without a wait; one more is allowed each time this has passed
FREE_OF_ADDRESS: Final = 100
STEP_OF_ADDRESS_US: Final = 500_000
# an attempt that would have to wait longer is refused at once, without a check
WAIT_US_MAX: Final = 8_000_000
# after this time without a failure, counting starts again
FORGET_US: Final = 60_000_000
ADDRESSES_MAX: Final = 4096
USERS_MAX: Final = 16_384
# longer names are cut, so that the size of the tables is bounded
NAME_MAX: Final = 255


class _Failures:
    """Failures of one user from one address."""

    def __init__(self) -> None:
        self.count = 0  # number of failures in a row
        self.last_us = 0  # time of the last one
        self.next_us = 0  # earliest time of the next attempt

    @property
    def step_us(self) -> int:
        excess = self.count - FREE
        return 0 if excess < 0 else min(STEP_US << min(excess, 8), STEP_US_MAX)


class _Spent:
    """Failures of one address."""

    def __init__(self) -> None:
        self.until_us = 0  # when its whole allowance is available again
        self.next_us = 0  # earliest time of the next attempt

    def due_us(self, now_us: int) -> int:
        """Return when an attempt that is made now may be checked."""
        is_free = self.until_us - now_us < FREE_OF_ADDRESS * STEP_OF_ADDRESS_US
        return now_us if is_free else max(now_us + STEP_OF_ADDRESS_US, self.next_us)


class LoginThrottle:
    """Counts of logins, and the waits after failures."""

    def __init__(self) -> None:
        self.succeeded: dict[str, int] = {}  # number of logins by protocol ("amqp091", "http")
        self.failed: dict[str, int] = {}
        # each of these is ordered by the last change; the oldest entry is removed first
        self._users: dict[tuple[str, str], _Failures] = {}
        self._addresses: dict[str, _Spent] = {}
        self._known: dict[tuple[str, str], None] = {}  # (address, user) of successful logins

    def wait_us(self, address: str, user: str, now_us: int) -> int:
        """Return how long an attempt that is made now must wait; -1 = refuse it without a check."""
        key = _key(address, user)
        due_us = now_us
        spent = None if key in self._known else self._addresses.get(key[0])
        if spent is not None:
            due_us = spent.due_us(now_us)
        failures = self._users.get(key)
        step_us = 0
        if failures is not None and now_us - failures.last_us <= FORGET_US:
            step_us = failures.step_us
            if step_us > 0:
                due_us = max(due_us, failures.next_us)
        if due_us - now_us > WAIT_US_MAX:
            return -1
        if failures is not None and step_us > 0:
            failures.next_us = due_us + step_us
        if spent is not None and due_us > now_us:
            spent.next_us = max(spent.next_us, due_us + STEP_OF_ADDRESS_US)
        return due_us - now_us

    def done(self, address: str, user: str, protocol: str, is_right: bool, now_us: int) -> None:
        """Count an attempt whose password was checked."""
        self.count(protocol, is_right)
        key = _key(address, user)
        failures = self._users.pop(key, None)
        if is_right:
            self._known.pop(key, None)
            self._known[key] = None
            if len(self._known) > USERS_MAX:
                del self._known[next(iter(self._known))]
            return
        if failures is None or now_us - failures.last_us > FORGET_US:
            failures = _Failures()
        failures.count += 1
        failures.last_us = now_us
        failures.next_us = max(failures.next_us, now_us + failures.step_us)
        self._users[key] = failures
        if len(self._users) > USERS_MAX:
            del self._users[next(iter(self._users))]
        self._spend(key[0], now_us)

    def count(self, protocol: str, is_right: bool) -> None:
        """Count an attempt that reveals nothing about a password: by a certificate, or refused without a check."""
        counts = self.succeeded if is_right else self.failed
        counts[protocol] = counts.get(protocol, 0) + 1

    def _spend(self, address: str, now_us: int) -> None:
        spent = self._addresses.pop(address, None) or _Spent()
        spent.until_us = max(spent.until_us, now_us) + STEP_OF_ADDRESS_US
        self._addresses[address] = spent
        if len(self._addresses) > ADDRESSES_MAX:
            del self._addresses[next(iter(self._addresses))]

    def forgive(self) -> None:
        """End all waits."""
        self._users.clear()
        self._addresses.clear()

    def reset(self) -> None:
        """Reset the counts, but not the waits."""
        self.succeeded.clear()
        self.failed.clear()


def _key(address: str, user: str) -> tuple[str, str]:
    return network(address), user[:NAME_MAX]


def network(address: str) -> str:
    """Return the part of an IP address that identifies a machine: of IPv6 the /64. Other names are returned as is."""
    if ":" not in address:
        return address
    try:
        return ip_address(address.partition("%")[0]).exploded[:19]
    except ValueError:
        return address
