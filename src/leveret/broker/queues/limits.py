"""What a queue checks of each message: its length limits, and whether it is a duplicate (queue_keys.py).

x-max-length, x-max-length-bytes and x-overflow are those of RabbitMQ's "Queue Length Limit", as in 3.10.8.
"""

from __future__ import annotations

from librt.strings import read_i64_be
from mypy_extensions import i64

from leveret.broker.messages.entry import Entry
from leveret.broker.queues.queue_keys import QueueKeys
from leveret.broker.queues.queue_types import QUORUM, queue_type
from leveret.wire.table import Value


class QueueLimits:
    """The limits of one queue, and the sizes that they apply to: those of ready, not of unacknowledged, messages."""

    def __init__(self, length_max: i64, octets_max: i64, overflow: str) -> None:
        self.length_max = length_max  # in messages, -1 = none
        self.octets_max = octets_max  # in octets of bodies, -1 = none
        # a full queue refuses new messages (reject-publish), or else drops the oldest (drop-head)
        self.refuses = overflow != "drop-head"
        # refused messages are dead-lettered (reject-publish-dlx)
        self.dead_letters_refused = overflow == "reject-publish-dlx"
        self.octets: i64 = 0  # of ready messages
        # aside, octets_aside: undeliverable dead letters that the queue keeps, which take room, too
        self.aside: i64 = 0
        self.octets_aside: i64 = 0
        self.keys: QueueKeys | None = None  # of its messages, if it takes no duplicates

    def left(self, entry: Entry) -> None:
        """Called when a message has left the queue for good."""
        if self.keys is not None:
            self.keys.leave(entry)

    def is_over(self, count: i64) -> bool:
        """Return whether a queue with this many ready messages exceeds a limit."""
        if count == 0:
            self.octets = 0  # messages of a page that could not be read were never subtracted
        return count > self.length_max >= 0 or self.octets > self.octets_max >= 0

    def refuses_one(self, count: i64, octets: i64) -> bool:
        """Return whether a queue with this many ready messages refuses another one of this size."""
        if not self.refuses:
            return False
        if count == 0:
            self.octets = 0
        return count + 1 + self.aside > self.length_max >= 0 or self._with(octets) > self.octets_max >= 0

    def _with(self, octets: i64) -> i64:
        """Return the size with one more message of this size."""
        return self.octets + self.octets_aside + octets


def limits_of(arguments: dict[str, Value], keys: QueueKeys | None) -> QueueLimits | None:
    """Return the limits that a queue's arguments set, None if there is nothing to check.

    keys: of the queue's messages; None = it takes duplicates.
    """
    length, octets = arguments.get("x-max-length"), arguments.get("x-max-length-bytes")
    if length is None and octets is None and keys is None:
        return None
    overflow = str(arguments.get("x-overflow", "drop-head"))
    if overflow == "reject-publish-dlx" and queue_type(arguments) == QUORUM:
        overflow = "drop-head"  # as RabbitMQ's quorum queues do
    limits = QueueLimits(length if isinstance(length, int) else -1, octets if isinstance(octets, int) else -1, overflow)
    limits.keys = keys
    return limits


def body_octets(content: bytes) -> i64:
    """Return the size of the body in stored content frames, from the header."""
    return read_i64_be(content, 11)
