"""Publisher confirms on the client's side: which publishes are unconfirmed, and what each answer means.

The broker numbers publishes from 1 after confirm.select and answers each exactly once, in any order, singly or
together (multiple). A mandatory message that no queue takes is returned (basic.return) BEFORE its ack (RabbitMQ,
"Publisher Confirms"). The return does not contain its number, so it is matched by content.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Sequence
from typing import Generic, TypeVar

from leveret.client.protocol.errors import Nacked, OutboxFull, PublishError, Unroutable
from leveret.client.protocol.reconnect import Reconnect
from leveret.wire.properties import Properties

T = TypeVar("T")
Content = tuple[str, str, str | None, bytes]


class Confirms(Generic[T]):
    """The unconfirmed publishes of one channel. T: the token that the API keeps per publish (a future, or None).

    policy: Keep the frames of unconfirmed publishes within its limits, so that they can be sent again after a
        reconnect. The broker then counts them from 1 again, while they keep their numbers here.
    """

    def __init__(self, on_settled: Callable[[T, PublishError | None], None], policy: Reconnect | None = None) -> None:
        self.last: int = 0  # number of the last publish
        self.outstanding: dict[int, T] = {}  # tokens of the unconfirmed publishes, by number
        self._policy = policy
        self._frames: dict[int, bytes] = {}
        self._octets = 0  # size of the frames
        self._on_settled = on_settled
        self._resent: list[int] = []  # numbers of the publishes that were sent again, in the order of the broker's
        self._shift = 0  # of a later publish: the difference between its number and the broker's
        # mandatory publishes only, since no other is ever returned
        self._mandatory: dict[int, Content] = {}
        self._by_content: dict[Content, deque[int]] = {}
        self._returned: dict[int, Unroutable] = {}

    def add(self, token: T, frames: bytes) -> int:
        """Register a publish that is about to be sent and return its number. Raises OutboxFull."""
        number = self.last + 1
        if self._policy is not None:
            if self._policy.is_full(len(self._frames), self._octets):
                raise OutboxFull(len(self._frames), self._octets)
            self._frames[number] = frames
            self._octets += len(frames)
        self.last = number
        self.outstanding[number] = token
        return number

    @property
    def is_full(self) -> bool:
        """Whether add() would raise OutboxFull."""
        return self._policy is not None and self._policy.is_full(len(self._frames), self._octets)

    def add_run(self, tokens: Sequence[T]) -> int:
        """Register publishes that are about to be sent together and return the number of the first."""
        first = self.last + 1
        self.last += len(tokens)
        self.outstanding.update(zip(range(first, self.last + 1), tokens, strict=True))
        return first

    def expect_return(
        self, number: int, exchange: str, routing_key: str, body: bytes, properties: Properties | None
    ) -> None:
        """Remember the content of a mandatory publish, to recognize its return."""
        content = (exchange, routing_key, properties.message_id if properties is not None else None, body)
        self._mandatory[number] = content
        self._by_content.setdefault(content, deque()).append(number)

    def returned(self, error: Unroutable) -> bool:
        """Match a returned message with the oldest publish of equal content. False if no publish matches."""
        content = (error.exchange, error.routing_key, error.properties.message_id, error.body)
        for number in self._by_content.get(content, ()):
            if number not in self._returned:
                self._returned[number] = error
                return True
        return False

    def answer(self, number: int, multiple: bool, accepted: bool) -> None:
        """Settle one publish, or with multiple all publishes up to number; number 0 with multiple means all."""
        if number and (self._resent or self._shift):
            number = self._resent[number - 1] if number <= len(self._resent) else number + self._shift
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

    def send_again(self) -> list[bytes]:
        """Return the frames of all unconfirmed publishes, in their order, to be sent on a new channel."""
        self._resent = list(self.outstanding)
        self._shift = self.last - len(self._resent)
        self._returned.clear()
        return [self._frames[number] for number in self._resent]

    @property
    def last_place(self) -> int:
        """The broker's number of the last publish."""
        return self.last - self._shift

    @property
    def first(self) -> int:
        """The broker's number of the oldest unconfirmed publish, or of the next one."""
        oldest = next(iter(self.outstanding), self.last + 1)
        return self._resent.index(oldest) + 1 if oldest in self._resent else oldest - self._shift

    def known(self, last: int, refused: Container[int]) -> None:
        """Settle what the broker says that it has after a reconnect: its numbers up to `last`, except those refused."""
        numbers = {number: place for place, number in enumerate(self._resent, 1)}
        for number in list(self.outstanding):
            place = numbers.get(number, number - self._shift)
            if place <= last and place not in refused:
                self._settle(number, accepted=True)

    def withdraw(self, number: int) -> None:
        """Forget a publish that was not sent, or whose outcome no longer matters."""
        del self.outstanding[number]
        self._octets -= len(self._frames.pop(number))
        self._forget(number)

    def close(self) -> None:
        """Stop settling publishes and drop the contents kept, when the channel has ended."""
        self._on_settled = nobody_waits
        self._frames.clear()
        self._mandatory.clear()
        self._by_content.clear()
        self._returned.clear()

    def _settle(self, number: int, accepted: bool) -> None:
        token = self.outstanding.pop(number)
        if self._policy is not None:
            self._octets -= len(self._frames.pop(number))
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
    """Ignore the outcome of a publish on a channel that has ended."""
