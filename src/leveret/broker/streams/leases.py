"""Leases: a reader of a stream's files protects them from retention for a while.

A lease protects all messages from an offset on. It ends when it is released, when its time is over, or with its stream.
META records keep it over restarts. Its times are those of the broker's own clock, which continues over restarts
(timeline.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from leveret.broker.storage.log import Log, meta_record
from leveret.wire.table import Value

OP: Final = "stream.lease"
OP_END: Final = "stream.lease.end"
DURATION_MS_MAX: Final = 3_600_000
"""A longer read renews its lease, so that a forgotten lease does not fill the disk."""
LEASES_MAX: Final = 1024
"""Leases that a stream has at a time."""
NAME_OCTETS_MAX: Final = 255
OFFSET_MAX: Final = (1 << 63) - 1
NOTHING: Final[i64] = -1


class LeaseRefused(Exception):
    """A lease is refused; the text says why."""


class Lease:
    """Protection of the messages of a stream from an offset on."""

    def __init__(self, id: str, name: str, first: i64, expires_us: i64) -> None:
        self.id = id
        self.name = name
        self.first = first  # offset of the first message that it protects
        self.expires_us = expires_us  # when its protection ends


class Leases:
    """The leases of one stream."""

    def __init__(self, log: Log, vhost: str, stream: str, random_bytes: Callable[[int], bytes]) -> None:
        self._log = log
        self._vhost = vhost  # names of the stream, for records
        self._stream = stream
        self._random_bytes = random_bytes  # makes ids that cannot be guessed
        self._by_id: dict[str, Lease] = {}

    def grant(self, name: str, first: int, oldest: int, duration_ms: int, now_us: i64) -> Lease:
        """Add a lease from offset `first` on, or from `oldest`, the first offset that exists, if that is larger.

        name: the holder, for people. Raises LeaseRefused if the duration or offset is invalid, the name too long, or
        the stream has LEASES_MAX leases.
        """
        _check(first, duration_ms)
        if len(name.encode("utf-8", "surrogateescape")) > NAME_OCTETS_MAX:
            raise LeaseRefused(f"the name of a lease has at most {NAME_OCTETS_MAX} octets")
        self._expire(now_us)
        if len(self._by_id) >= LEASES_MAX:
            raise LeaseRefused(f"stream '{self._stream}' already has {LEASES_MAX} leases, the maximum")
        lease = Lease(self._random_bytes(8).hex(), name, max(first, oldest), now_us + i64(duration_ms) * 1000)
        self._by_id[lease.id] = lease
        self._log.meta(self._record(lease))
        return lease

    def renew(self, id: str, first: int | None, duration_ms: int, now_us: i64) -> Lease | None:
        """Restart the time of a lease; None if it does not exist (any more).

        first: a larger offset releases the messages before it; a smaller one or None changes nothing. Raises
        LeaseRefused as `grant` does.
        """
        _check(0 if first is None else first, duration_ms)
        self._expire(now_us)
        lease = self._by_id.get(id)
        if lease is not None:
            lease.first = lease.first if first is None else max(lease.first, first)
            lease.expires_us = now_us + i64(duration_ms) * 1000
            self._log.meta(self._record(lease))
        return lease

    def release(self, id: str, now_us: i64) -> bool:
        """End a lease; False if it does not exist (any more)."""
        self._expire(now_us)
        if self._by_id.pop(id, None) is None:
            return False
        self._log.meta({"op": OP_END, "vhost": self._vhost, "name": self._stream, "id": id})
        return True

    def living(self, now_us: i64) -> list[Lease]:
        """Return the leases in force, oldest first."""
        self._expire(now_us)
        return list(self._by_id.values())

    def floor(self, now_us: i64) -> i64:
        """Return the smallest offset that is protected now, or NOTHING."""
        if not self._by_id:
            return NOTHING
        self._expire(now_us)
        return min([lease.first for lease in self._by_id.values()], default=NOTHING)

    def restore(self, record: dict[str, Value]) -> None:
        """Apply a journal record."""
        id, first, expires_us = str(record["id"]), record.get("first"), record.get("expires_us")
        if record["op"] == OP_END:
            self._by_id.pop(id, None)
        else:
            assert isinstance(first, int)
            assert isinstance(expires_us, int)
            self._by_id[id] = Lease(id, str(record["holder"]), first, expires_us)

    def snapshot(self) -> list[bytes]:
        """Return the records for the beginning of a journal file; leases whose time is over may be among them."""
        return [meta_record(self._record(lease)) for lease in self._by_id.values()]

    def _record(self, lease: Lease) -> dict[str, Value]:
        first, expires_us = int(lease.first), int(lease.expires_us)
        place: dict[str, Value] = {"op": OP, "vhost": self._vhost, "name": self._stream}
        return place | {"id": lease.id, "holder": lease.name, "first": first, "expires_us": expires_us}

    def _expire(self, now_us: i64) -> None:
        over = [id for id, lease in self._by_id.items() if lease.expires_us <= now_us]
        for id in over:
            del self._by_id[id]


def _check(first: int, duration_ms: int) -> None:
    if not 1 <= duration_ms <= DURATION_MS_MAX:
        raise LeaseRefused(f"a lease lasts for 1 to {DURATION_MS_MAX} ms, not {duration_ms}")
    if not 0 <= first <= OFFSET_MAX:
        raise LeaseRefused(f"{first} is not an offset")
