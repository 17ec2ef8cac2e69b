"""What happens to a message in a queue: whether it is accepted, how long it waits, and why it leaves."""

from __future__ import annotations

from typing import Final

from leveret.broker.queues.limits import body_octets
from leveret.broker.queues.queue import Queue
from leveret.broker.queues.queue_types import is_at_least_once, queue_type
from leveret.control.explain.message import ExplainedMessage
from leveret.control.explain.reasons import quoted
from leveret.wire.table import Value

PURPOSE: Final = "x-internal-purpose"
LINK: Final = "federation: "


class Fate:
    """The fate of one message in one queue."""

    def __init__(self, queue: Queue, message: ExplainedMessage) -> None:
        self.queue = queue
        self.takes = True  # whether the queue accepts it
        self.notes: list[str] = []  # remarks in words
        self.ttl_us = -1  # maximum time in the queue, -1 = unlimited
        self.death = ""  # why it leaves unless it is consumed: "expired", "maxlen", "rejected", "" = it stays
        self._arguments = queue.effect.on(queue.arguments, queue_type(queue.arguments))
        self._look_at_room(int(body_octets(message.content)))
        self._look_at_key(message.content)
        if queue.is_stream:
            if message.ttl_us >= 0:
                self.notes.append("a stream ignores the expiration and keeps the message until retention removes it")
            return
        if not self.takes:
            return
        self._look_at_time(message.ttl_us)
        self._look_at_consumers()
        if not self.death and queue.dead_letter_exchange is not None:
            self.death = "rejected"

    def _look_at_key(self, content: bytes) -> None:
        limits = self.queue.limits
        keys = limits.keys if limits is not None else None
        if self.takes and keys is not None and keys.owner(content, self.queue.timers.now_us) is not None:
            self.takes = False
            self.notes.append("it has a message with the same x-deduplication-header: publishers get an ack")

    def _look_at_room(self, octets: int) -> None:
        limits, count = self.queue.limits, int(self.queue.count())
        if limits is None:
            return
        full = self._limit(count)
        if limits.refuses_one(count, octets):
            self.takes = False
            policy = str(self._arguments.get("x-overflow"))
            self.notes.append(f"it is full ({full}) and rejects new messages ({policy}): publishers get a nack")
            self.death = "maxlen" if limits.dead_letters_refused and self.queue.dead_letter_exchange is not None else ""
        elif not limits.refuses and 0 <= limits.length_max <= count:
            self.notes.append(f"it is full ({full}): the oldest message is removed to make room (drop-head)")
        elif not limits.refuses and 0 <= limits.octets_max < limits.octets + octets:
            self.notes.append(f"it is full ({full}): the oldest messages are removed to make room (drop-head)")

    def _limit(self, count: int) -> str:
        limits = self.queue.limits
        assert limits is not None
        parts = []
        if limits.length_max >= 0:
            parts.append(f"{count} of {limits.length_max} messages, x-max-length set {self._said_by('max-length')}")
        if limits.octets_max >= 0:
            octets = f"{limits.octets} of {limits.octets_max} bytes"
            parts.append(f"{octets}, x-max-length-bytes set {self._said_by('max-length-bytes')}")
        return "; ".join(parts)

    def _look_at_time(self, own_us: int) -> None:
        """Use the smaller time to live of queue and message, as the queue itself does (`Queue.expiry`)."""
        queue, now_us = self.queue, 1
        until_us = int(queue.expiry(now_us, own_us))
        if until_us == 0:
            return
        self.ttl_us = until_us - now_us
        self.death = "expired"
        is_own = own_us >= 0 and self.ttl_us == own_us and self.ttl_us != queue.ttl_us
        whose = "its own expiration" if is_own else f"x-message-ttl set {self._said_by('message-ttl')}"
        self.notes.append(f"it waits at most {seconds(self.ttl_us)} ({whose})")
        if queue.dead_letter_exchange is None:
            self.notes.append("then it is dropped: the queue has no dead letter exchange")

    def _look_at_consumers(self) -> None:
        queue = self.queue
        count = int(queue.consumers.count)
        if queue.owner is not None:
            self.notes.append("the queue is exclusive to one connection and is deleted with it")
        if str(self._arguments.get(PURPOSE, "")) == "federation" or queue.name.startswith(LINK):
            state = "the link is connected" if count else "no link is connected, so it waits"
            self.notes.append(
                f"a federation link copies it to {queue.name.removeprefix(LINK).partition(' -> ')[2]}: {state}"
            )
        elif count:
            self.notes.append(f"{count} consumer{'s' if count > 1 else ''} may receive it at once")
        if queue.is_quorum and is_at_least_once(self._arguments):
            self.notes.append("dead letters stay here until another queue has stored them (at-least-once)")
        if queue.delivery_limit >= 0:
            self.notes.append(f"after {queue.delivery_limit} returns it is dead-lettered (x-delivery-limit)")

    def onward(self) -> str:
        """Return where dead letters go, and what sets this."""
        exchange, key = self.queue.dead_letter_exchange, self.queue.dead_letter_key
        assert exchange is not None
        where = f"exchange {quoted(exchange)}" if exchange else "the default exchange"
        by = self._said_by("dead-letter-exchange")
        if key is None:
            return f"{where} with its own key ({by})"
        by_key = self._said_by("dead-letter-routing-key")
        return f"{where} with key {quoted(key)} ({by}{'' if by == by_key else f'; the key {by_key}'})"

    def _said_by(self, name: str) -> str:
        """Return what sets this argument: the declaration or policies."""
        own: Value = self.queue.arguments.get(f"x-{name}")
        if own is not None and own == self._arguments.get(f"x-{name}"):
            return "by its declaration"
        effect = self.queue.effect
        names = [f"policy {quoted(effect.policy)}"] if effect.policy else []
        names += [f"operator policy {quoted(effect.operator_policy)}"] if effect.operator_policy else []
        return f"by {' and '.join(names)}" if names else "by its declaration"


def seconds(us: int) -> str:
    """Format a duration: milliseconds below one second, else seconds."""
    return f"{us / 1000:g} ms" if us < 1_000_000 else f"{us / 1_000_000:g} s"
