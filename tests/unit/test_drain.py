"""What a drain acknowledges when the other broker refuses one of many messages."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from leveret.client import Delivery, Nacked
from leveret.client.drain import Drain, DrainStopped
from leveret.wire.properties import Properties, encode_header


class Side:
    """Stands in for the channel on either broker."""

    is_closed = False

    def __init__(self) -> None:
        self.published: list[asyncio.Future[None]] = []
        self.acked: list[tuple[int, bool]] = []

    def publish(self, *_: object, **__: object) -> asyncio.Future[None]:
        self.published.append(asyncio.get_running_loop().create_future())
        return self.published[-1]

    async def wait_for_confirms(self) -> None:
        await asyncio.wait(self.published)

    def ack(self, tag: int, multiple: bool = False) -> None:
        self.acked.append((tag, multiple))


async def test_what_is_confirmed_behind_a_refusal_is_acknowledged_alone() -> None:
    nowhere: Any = None
    drain, taking, giving = Drain(nowhere, "a", nowhere, "b", "guest"), Side(), Side()
    parts: Any = drain
    parts._taking, parts._giving, parts._limit = taking, giving, 100
    header = encode_header(Properties(), 0)
    for tag in range(1, 6):
        drain._deliver(Delivery(b"", header, "", "key", tag, False, "tag"))
    first, refused, *others = giving.published
    refused.set_exception(Nacked(2))
    for future in (first, *others):
        future.set_result(None)
    await drain._settle_all()
    assert taking.acked[0] == (1, True)
    assert set(taking.acked[1:]) == {(3, False), (4, False), (5, False)}
    assert drain.progress.moved == 4
    assert isinstance(drain._failure, DrainStopped)


async def test_deliveries_that_come_behind_the_first_answer_are_waited_for() -> None:
    """A RabbitMQ channel may report an empty queue before it sends deliveries that are already under way."""
    nowhere: Any = None
    drain, giving = Drain(nowhere, "a", nowhere, "b", "guest"), Side()
    header = encode_header(Properties(), 0)

    class Taking(Side):
        asked = 0

        async def declare_queue(self, queue: str, passive: bool) -> Any:
            self.asked += 1
            if self.asked == 2:
                drain._deliver(Delivery(b"", header, "", "key", 1, False, "tag"))
            return SimpleNamespace(message_count=0)

    taking = Taking()
    parts: Any = drain
    parts._taking, parts._giving, parts._limit = taking, giving, 100
    assert await drain._is_more()
    giving.published[0].set_result(None)
    await drain._settle_all()
    assert taking.acked == [(1, True)]
    assert not await drain._is_more()
