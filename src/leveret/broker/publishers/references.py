"""The publisher references of a virtual host: attached, taken over, closed, forgotten (docs/guides/exactly-once.md).

Each attachment begins a new epoch, which is on disk before its client is told. A client that comes back names the epoch
that it had, so it is refused if another one has attached since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker import closed_names
from leveret.broker.closed_names import CLOSED_MAX, digest
from leveret.broker.publishers.reference import DECLARE, REFUSED_MASK, PublisherReference
from leveret.broker.storage.log import publisher_record
from leveret.broker.timers import Timer
from leveret.wire.errors import PRECONDITION_FAILED, quoted
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.channel import BrokerChannel
    from leveret.broker.vhost import VHost

FORGET: Final = "publisher.delete"
CLOSE: Final = "publisher.close"
CLOSED: Final = "publisher.closed"
OPS: Final = (DECLARE, FORGET, CLOSE, CLOSED)
PUBLISHERS_MAX: Final = 10_000
"""Of one virtual host."""
DAY_US: Final[i64] = 86_400_000_000


class PublisherError(Exception):
    """An operation on a publisher reference is refused; the text says why."""


class PublisherReferences(Timer):
    """The publisher references of one virtual host."""

    def __init__(self, vhost: VHost) -> None:
        super().__init__(vhost.timers)
        self.vhost = vhost
        self.by_name: dict[str, PublisherReference] = {}
        self.closed: dict[int, str] = {}  # owners of closed references, by the digests of their names
        self.unused_days_max = -1  # days until an unused reference is closed, -1 = never

    def owner_of(self, name: str) -> str | None:
        """Return the owner of a reference, even if it is closed; None if it is unknown."""
        reference = self.by_name.get(name)
        return self.closed.get(digest(name)) if reference is None else reference.owner

    def owned(self, owner: str) -> list[PublisherReference]:
        """Return the references of one user."""
        return [reference for reference in self.by_name.values() if reference.owner == owner]

    def check_open(self, name: str) -> None:
        """Raise PublisherError if the reference is closed."""
        if self.closed and digest(name) in self.closed:
            raise PublisherError(
                f"publisher reference '{name}' was forgotten after {self.unused_days_max} days without use: check "
                'what is stored, then forget it (op "forget", leveret ctl forget_publisher) or use another name'
            )

    def attach(
        self, channel: BrokerChannel, tag: str, name: str, owner: str, epoch: int, first_id: int, now_us: i64
    ) -> PublisherReference:
        """Let a channel hold a reference, which is created if necessary, in a new epoch.

        Args:
            channel: in confirm mode, without another reference.
            tag: of its basic.consume.
            name: the reference.
            owner: the user, for a new reference.
            epoch: the epoch that the client had before its connection was lost; 0 for a client that begins.
            first_id: the client knows the outcome of all publishes before this id.
            now_us: the time.

        Raises:
            PublisherError: the reference is closed or unknown, another client has it, or there are too many.
        """
        reference = self._checked(name, epoch)
        if reference is None:
            if len(self.by_name) >= PUBLISHERS_MAX:
                raise PublisherError(
                    f"vhost '{self.vhost.name}' has reached the limit of {PUBLISHERS_MAX} publisher references: forget "
                    "some (forget_publisher)"
                )
            log = self.vhost.log
            reference = self.by_name[name] = PublisherReference(log.next_number, name, owner, log)
            log.next_number += 1
            self.wake(now_us + DAY_US)
        self._end_holding(reference, f"taken over by channel {channel.number} of connection '{channel.peer.name}'")
        reference.epoch += 1
        reference.since = epoch or reference.epoch
        reference.used_us = now_us
        reference.hold(channel, tag, first_id)
        self._record(reference.record_fields(self.vhost.name))
        return reference

    def _checked(self, name: str, epoch: int) -> PublisherReference | None:
        """Return the reference if it exists. Raises PublisherError if a client with this epoch may not have it."""
        self.check_open(name)
        reference = self.by_name.get(name)
        if epoch == 0:
            return reference
        what = f"publisher reference '{name}'"
        if reference is None:
            raise PublisherError(
                f"{what} was forgotten: it is unknown which publishes of epoch {epoch} are stored; check, then attach "
                "without x-leveret-epoch"
            )
        if epoch < reference.since:
            raise PublisherError(
                f"{what} is held in epoch {reference.epoch}, this client had epoch {epoch}: another publisher has "
                "taken it over"
            )
        if epoch > reference.epoch:
            raise PublisherError(
                f"{what} is in epoch {reference.epoch}, this client had epoch {epoch}: the broker has lost the end of "
                "its data (an older backup?); check what is stored, then attach without x-leveret-epoch"
            )
        return reference

    def _end_holding(self, reference: PublisherReference, why: str) -> None:
        """Close the channel that holds a reference: what it has not published yet is not published any more."""
        holder = reference.holder
        if holder is not None:
            peer = holder.peer
            peer.now_us = self.timers.now_us
            peer.close_channel(holder, PRECONDITION_FAILED, f"publisher reference '{reference.name}' was {why}")

    def forget(self, name: str) -> bool:
        """Remove a reference, or allow the name of a closed one to be used anew; False if it is unknown.

        A channel that holds it is closed.
        """
        reference = self.by_name.get(name)
        if reference is not None:
            self._end_holding(reference, "forgotten")
            del self.by_name[name]
        elif self.closed.pop(digest(name), None) is None:
            return False
        self._record({"op": FORGET, "vhost": self.vhost.name, "publisher": name})
        return True

    def fire(self, until_us: i64, most: i64, now_us: i64) -> i64:
        """Record the use of references that are held, and close those that were unused for too long; once a day."""
        self.timer_us = 0
        unused_us_max = (self.unused_days_max + 1) * DAY_US  # use is recorded to within a day
        for reference in list(self.by_name.values()):
            if reference.holder is not None:
                reference.used_us = now_us
                self._record(reference.record_fields(self.vhost.name))
            elif 0 < unused_us_max <= now_us - reference.used_us and len(self.closed) < CLOSED_MAX:
                self._record({"op": CLOSE, "vhost": self.vhost.name, "publisher": reference.name})
                self._close(reference)
                self.vhost.on_event(
                    f"publisher reference {quoted(reference.name)} in vhost {quoted(self.vhost.name)} was not used for "
                    f"{self.unused_days_max} days and is closed: the broker no longer knows which of its messages are "
                    "stored, so it refuses this publisher until the reference is forgotten (leveret ctl "
                    "forget_publisher)"
                )
        if self.by_name:
            self.wake(now_us + DAY_US)
        return 1

    def _close(self, reference: PublisherReference) -> None:
        del self.by_name[reference.name]
        self.closed[digest(reference.name)] = reference.owner

    # -- the journal ---------------------------------------------------------------------------------------------------

    def _record(self, fields: dict[str, Value]) -> None:
        self.vhost.log.declared(publisher_record(fields))

    def snapshot(self) -> list[bytes]:
        """Return the records for the beginning of a journal file."""
        vhost = self.vhost.name
        records = [publisher_record(reference.record_fields(vhost)) for reference in self.by_name.values()]
        for owner, digests in closed_names.by_owner(self.closed).items():
            records.append(publisher_record({"op": CLOSED, "vhost": vhost, "owner": owner, "publishers": digests}))
        return records

    def restore(self, record: dict[str, Value]) -> PublisherReference | None:
        """Apply a journal record; return the reference that it declares."""
        op, name = record["op"], str(record.get("publisher", ""))
        if op == DECLARE:
            return self._restore_reference(name, record)
        if op == CLOSED:
            closed_names.restore(self.closed, str(record["owner"]), record["publishers"])
        elif op == FORGET:
            self.by_name.pop(name, None)
            self.closed.pop(digest(name), None)
        elif name in self.by_name:
            self._close(self.by_name[name])
        return None

    def _restore_reference(self, name: str, record: dict[str, Value]) -> PublisherReference:
        log, number, refused = self.vhost.log, _number(record, "number"), record["refused"]
        assert isinstance(refused, bytes)
        reference = self.by_name[name] = PublisherReference(number, name, str(record["owner"]), log)
        log.next_number = max(log.next_number, number + 1)
        reference.epoch = _number(record, "epoch")
        reference.since = _number(record, "since")
        reference.last_id = _number(record, "last_id")
        reference.refused = int.from_bytes(refused, "big") & REFUSED_MASK
        reference.used_us = _number(record, "used_us")
        return reference

    def recovered(self, now_us: i64) -> None:
        """Handle the end of recovery."""
        if self.by_name:
            self.wake(now_us + DAY_US)


def _number(record: dict[str, Value], name: str) -> int:
    found = record[name]
    assert isinstance(found, int)
    return found
