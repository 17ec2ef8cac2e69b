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

# failures of one user in a row that cost nothing
FREE: Final = 8
STEP_US: Final = 250_000
STEP_US_MAX: Final = 4_000_000
# failures of an address, over all users, that cost nothing; one more is allowed each time this has passed
FREE_OF_ADDRESS: Final = 100
STEP_OF_ADDRESS_US: Final = 500_000
# an attempt that would have to wait longer is refused at once, without a check
WAIT_US_MAX: Final = 8_000_000
# after this time without a failure the count begins anew
FORGET_US: Final = 60_000_000
ADDRESSES_MAX: Final = 4096
USERS_MAX: Final = 16_384
# longer names are one, so that the table is bounded in octets, too
NAME_MAX: Final = 255


class _Failures:
    """Of a user from an address. count: in a row; last_us: the last one; next_us: when the next attempt is seen."""

    def __init__(self) -> None:
        self.count = 0
        self.last_us = 0
        self.next_us = 0

    @property
    def step_us(self) -> int:
        excess = self.count - FREE
        return 0 if excess < 0 else min(STEP_US << min(excess, 8), STEP_US_MAX)


class _Spent:
    """Failures of an address. until_us: when all of them have come back; next_us: when the next attempt is seen."""

    def __init__(self) -> None:
        self.until_us = 0
        self.next_us = 0

    def due_us(self, now_us: int) -> int:
        """When an attempt that is made now may be looked at."""
        is_free = self.until_us - now_us < FREE_OF_ADDRESS * STEP_OF_ADDRESS_US
        return now_us if is_free else max(now_us + STEP_OF_ADDRESS_US, self.next_us)


class LoginThrottle:
    """succeeded, failed: how many there were, by protocol ("amqp091", "http")."""

    def __init__(self) -> None:
        self.succeeded: dict[str, int] = {}
        self.failed: dict[str, int] = {}
        # in each of these what changed longest ago is first, and goes first
        self._users: dict[tuple[str, str], _Failures] = {}
        self._addresses: dict[str, _Spent] = {}
        self._known: dict[tuple[str, str], None] = {}  # who has logged in from where

    def wait_us(self, address: str, user: str, now_us: int) -> int:
        """How long an attempt that is made now must wait; -1 if it is to be refused unseen."""
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
        """A password was looked at, and was right or wrong."""
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
        """An attempt was made that says nothing of a password: by a certificate, or refused unseen."""
        counts = self.succeeded if is_right else self.failed
        counts[protocol] = counts.get(protocol, 0) + 1

    def _spend(self, address: str, now_us: int) -> None:
        spent = self._addresses.pop(address, None) or _Spent()
        spent.until_us = max(spent.until_us, now_us) + STEP_OF_ADDRESS_US
        self._addresses[address] = spent
        if len(self._addresses) > ADDRESSES_MAX:
            del self._addresses[next(iter(self._addresses))]

    def forgive(self) -> None:
        """Nobody has to wait any more."""
        self._users.clear()
        self._addresses.clear()

    def reset(self) -> None:
        """Count from zero; who has to wait still has to."""
        self.succeeded.clear()
        self.failed.clear()


def _key(address: str, user: str) -> tuple[str, str]:
    return network(address), user[:NAME_MAX]


def network(address: str) -> str:
    """What one machine may have many addresses of: a /64 of IPv6. address: an IP address, or any other name."""
    if ":" not in address:
        return address
    try:
        return ip_address(address.partition("%")[0]).exploded[:19]
    except ValueError:
        return address
