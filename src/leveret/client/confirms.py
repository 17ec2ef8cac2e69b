"""Publisher confirms on the client's side: which publishes are unanswered, and what each answer means.

The broker numbers publishes from 1 after confirm.select and answers each exactly once, in any order, singly or
together (multiple). A mandatory message without a queue comes back as basic.return BEFORE its ack (RabbitMQ,
"Publisher Confirms"); the return does not say its number, so it is matched by content.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from leveret.client.errors import Nacked, PublishError, Unroutable
from leveret.wire.properties import Properties

T = TypeVar("T")
Content = tuple[str, str, str | None, bytes]


class Confirms(Generic[T]):
    """The unconfirmed publishes of one channel. T: what the face keeps per publish (a future, or nothing)."""

    def __init__(self, on_settled: Callable[[T, PublishError | None], None]) -> None:
        self.last = 0
        self.outstanding: dict[int, T] = {}
        self._on_settled = on_settled
        # mandatory publishes only, since no other can come back
        self._mandatory: dict[int, Content] = {}
        self._by_content: dict[Content, deque[int]] = {}
        self._returned: dict[int, Unroutable] = {}

    def add(self, token: T) -> int:
        """Number the publish that is being sent."""
        self.last += 1
        self.outstanding[self.last] = token
        return self.last

    def add_run(self, tokens: Sequence[T]) -> int:
        """Number a run of publishes that are being sent together: the number of the first."""
        first = self.last + 1
        self.last += len(tokens)
        self.outstanding.update(zip(range(first, self.last + 1), tokens, strict=True))
        return first

    def expect_return(
        self, number: int, exchange: str, routing_key: str, body: bytes, properties: Properties | None
    ) -> None:
        """Remember what a mandatory publish looks like, should it come back."""
        content = (exchange, routing_key, properties.message_id if properties is not None else None, body)
        self._mandatory[number] = content
        self._by_content.setdefault(content, deque()).append(number)

    def returned(self, error: Unroutable) -> bool:
        """Match a returned message with its publish: the oldest of equal content. False if none is like it."""
        content = (error.exchange, error.routing_key, error.properties.message_id, error.body)
        for number in self._by_content.get(content, ()):
            if number not in self._returned:
                self._returned[number] = error
                return True
        return False

    def answer(self, number: int, multiple: bool, accepted: bool) -> None:
        """Settle one publish, or (multiple) every one up to number; number 0 with multiple means all."""
        if not multiple:
            if number in self.outstanding:
                self._settle(number, accepted)
            return
        covered = []
        for tag in self.outstanding:
            if number and tag > number:
                break
            covered.append(tag)
        for tag in covered:
            self._settle(tag, accepted)

    def close(self) -> None:
        """The channel is gone: nothing is answered any more, nor does anything come back."""
        self._on_settled = nobody_waits
        self._mandatory.clear()
        self._by_content.clear()
        self._returned.clear()

    def _settle(self, number: int, accepted: bool) -> None:
        token = self.outstanding.pop(number)
        error: PublishError | None = None
        if self._mandatory:
            error = self._forget(number)
        if error is None and not accepted:
            error = Nacked(number)
        self._on_settled(token, error)

    def _forget(self, number: int) -> Unroutable | None:
        content = self._mandatory.pop(number, None)
        if content is None:
            return None
        numbers = self._by_content[content]
        numbers.remove(number)
        if not numbers:
            del self._by_content[content]
        return self._returned.pop(number, None)


def nobody_waits(token: object, error: PublishError | None) -> None:
    """Nobody waits for publishes of a channel that is gone."""
