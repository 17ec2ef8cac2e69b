"""A publisher reference: how far a client's numbered publishes have been taken, whatever connection they came by.

While a channel holds the reference, each of its publishes has the next publishing id: the number that its confirm has,
plus a constant. The id that a turn has reached is recorded in the same batch of the journal as the turn's messages, so
after a crash the last id says exactly which messages are stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.storage.log import Log, published_record
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.channel import BrokerChannel

DECLARE: Final = "publisher.declare"
REFUSED_KEPT: Final = 65_536
"""Number of latest ids among which refused ones are remembered; clients must have fewer unconfirmed publishes."""
# a call, not a constant expression: mypyc folds constants and crashes on an integer this large
REFUSED_MASK: Final = int.from_bytes(b"\xff" * (REFUSED_KEPT // 8), "big")


class PublisherReference:
    """One publisher, known to the broker by its reference."""

    def __init__(self, number: int, name: str, owner: str, log: Log) -> None:
        self.number = number  # in the journal
        self.name = name
        self.owner = owner  # the user who used it first
        self.used_us: i64 = 0  # when it was attached or published last, to within a day after a crash
        self.epoch = 0  # grows each time that a channel attaches
        # the earliest epoch whose client may come back: later ones were begun by the same client, which published
        # nothing in them, because the answer that told it of them was lost
        self.since = 0
        self.last_id: i64 = 0  # the last publishing id that was taken, 0 = none
        self.refused = 0  # bit k is set if id last_id - k was refused or returned
        self.holder: BrokerChannel | None = None
        self.tag = ""  # of the basic.consume that attached it
        self._log = log
        self._offset: i64 = 0  # publishing id of a publish of the holder, minus its number among the confirms
        self._recorded: i64 = 0  # number of the holder's last publish that the journal knows
        self._refused_now: list[int] = []  # ids that were refused since the last record

    def hold(self, channel: BrokerChannel, tag: str, first_id: i64) -> None:
        """Number the publishes of this channel from now on. first_id: no earlier id is used again."""
        confirms = channel.confirms
        assert confirms is not None
        self.holder = channel
        self.tag = tag
        self._recorded = confirms.published
        self._offset = max(self.last_id, first_id - 1) - confirms.published
        channel.publisher = self

    def detach(self, now_us: i64) -> None:
        """Let the channel go that holds it."""
        channel = self.holder
        if channel is not None:
            self.record()
            self.used_us = now_us
            self.holder = None
            channel.publisher = None

    def refuse(self, ahead: i64) -> None:
        """Note that a publish is not stored: it is answered with basic.nack, or returned.

        Args:
            ahead: 0 for the holder's last counted publish, 1 for the next one.
        """
        channel = self.holder
        if channel is not None and channel.confirms is not None:
            self._refused_now.append(int(self._offset + channel.confirms.published + ahead))

    def record(self) -> None:
        """Record in the journal what the holder's publishes have reached since the last record."""
        channel = self.holder
        assert channel is not None
        assert channel.confirms is not None
        published = channel.confirms.published
        if published == self._recorded:
            return
        self._recorded = published
        last_id = self._offset + published
        refused = 0
        for id in self._refused_now:
            if last_id - id < REFUSED_KEPT:
                refused |= 1 << (int(last_id) - id)
        self._refused_now.clear()
        self.reach(last_id, refused)
        self._log.declared(published_record(self.number, int(last_id), refused))

    def reach(self, last_id: i64, refused: int) -> None:
        """Take all ids up to this one. refused: bit k is set if id last_id - k was refused."""
        step = last_id - self.last_id
        if step > 0:
            self.refused = (self.refused << int(step)) & REFUSED_MASK if self.refused and step < REFUSED_KEPT else 0
            self.last_id = last_id
            self.since = self.epoch
        self.refused |= refused

    def refused_ids(self, first_id: i64 = 1) -> list[int]:
        """Return the ids from this one on that were refused or returned, in order."""
        return [id for id in ids_of(int(self.last_id), self.refused) if id >= first_id]

    def facts(self, first_id: i64 = 1) -> dict[str, Value]:
        """Return what its client is told. first_id: it knows the outcome of everything before."""
        refused: list[Value] = [*self.refused_ids(first_id)]
        return {"publisher": self.name, "epoch": self.epoch, "last_id": int(self.last_id), "refused": refused}

    def record_fields(self, vhost: str) -> dict[str, Value]:
        """Return the journal's record of it."""
        return {
            "op": DECLARE,
            "vhost": vhost,
            "publisher": self.name,
            "number": self.number,
            "owner": self.owner,
            "epoch": self.epoch,
            "since": self.since,
            "last_id": int(self.last_id),
            "refused": self.refused.to_bytes((self.refused.bit_length() + 7) // 8, "big"),
            "used_us": int(self.used_us),
        }


def ids_of(last_id: int, refused: int) -> list[int]:
    """Return the refused ids in order. refused: bit k stands for id last_id - k."""
    digits = f"{refused:b}"
    first_id = last_id - len(digits) + 1
    return [first_id + at for at, digit in enumerate(digits) if digit == "1"]
