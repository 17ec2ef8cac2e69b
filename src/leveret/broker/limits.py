"""x-max-length, x-max-length-bytes and x-overflow of one queue (RabbitMQ's "Queue Length Limit", as 3.10.8 does it)."""

from __future__ import annotations

from librt.strings import read_i64_be
from mypy_extensions import i64

from leveret.broker.queue_types import QUORUM, queue_type
from leveret.wire.table import Value


class Limits:
    """length_max in messages, octets_max in octets of body, -1 = none; both count what is ready, not what is unacked.

    refuses: new messages are refused when the queue is full (reject-publish), else the oldest ones go (drop-head);
    dead_letters_refused: those refused are dead-lettered (reject-publish-dlx). octets: what is ready now; aside,
    octets_aside: dead letters that the queue keeps, which take room too.
    """

    def __init__(self, length_max: i64, octets_max: i64, overflow: str) -> None:
        self.length_max = length_max
        self.octets_max = octets_max
        self.refuses = overflow != "drop-head"
        self.dead_letters_refused = overflow == "reject-publish-dlx"
        self.octets: i64 = 0
        self.aside: i64 = 0
        self.octets_aside: i64 = 0

    def is_over(self, count: i64) -> bool:
        """Whether a queue with this many ready messages holds too much."""
        if count == 0:
            self.octets = 0  # a page that could not be read took its messages along uncounted
        return count > self.length_max >= 0 or self.octets > self.octets_max >= 0

    def refuses_one(self, count: i64, octets: i64) -> bool:
        """Whether a queue with this many ready messages has no room for another one of this size, and refuses it."""
        if not self.refuses:
            return False
        if count == 0:
            self.octets = 0
        return count + 1 + self.aside > self.length_max >= 0 or self._with(octets) > self.octets_max >= 0

    def _with(self, octets: i64) -> i64:
        """What there would be with one more message of this size."""
        return self.octets + self.octets_aside + octets


def limits_of(arguments: dict[str, Value]) -> Limits | None:
    """The limits that a queue's arguments set, None if there are none."""
    length, octets = arguments.get("x-max-length"), arguments.get("x-max-length-bytes")
    if length is None and octets is None:
        return None
    overflow = str(arguments.get("x-overflow", "drop-head"))
    if overflow == "reject-publish-dlx" and queue_type(arguments) == QUORUM:
        overflow = "drop-head"  # which is what RabbitMQ's quorum queues make of it
    return Limits(length if isinstance(length, int) else -1, octets if isinstance(octets, int) else -1, overflow)


def body_octets(content: bytes) -> i64:
    """Size of the body in stored content frames, as the header says."""
    return read_i64_be(content, 11)
