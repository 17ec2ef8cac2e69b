"""A turn of the loop spends a limited time on connections in their handshake."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from leveret.net.connections.handshake_budget import TURN_US, HandshakeBudget


class Loop(asyncio.AbstractEventLoop):
    """The calls for the next turn."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
        self.calls.append(callback)


class Door:
    """Counts the data that came in; each piece takes `take_us`."""

    def __init__(self, take_us: int) -> None:
        self.loop = Loop()
        self.came: list[tuple[Any, bytes]] = []
        self._take_us = take_us
        self._now_ns = 0
        self.handshake_budget = HandshakeBudget(self.loop, self._received, lambda: self._now_ns)

    def _received(self, protocol: Any, data: bytes) -> None:
        self.came.append((protocol, data))
        self._now_ns += self._take_us * 1000

    def knock(self, protocol: Any, data: bytes) -> None:
        self.handshake_budget.received(protocol, data)

    def turn(self) -> int:
        """Run another turn of the loop; return how many pieces have come in so far."""
        calls, self.loop.calls = self.loop.calls, []
        for call in calls:
            call()
        return len(self.came)


def test_a_turn_has_room_for_some_and_the_next_for_others() -> None:
    door = Door(take_us=TURN_US // 4)
    for client in range(10):
        door.knock(client, b"AMQP")
    assert [len(door.came), door.turn(), door.turn(), door.turn()] == [4, 8, 10, 10]
    assert [client for client, _ in door.came] == list(range(10))


def test_another_turn_has_room_again() -> None:
    door = Door(take_us=TURN_US)
    door.knock(1, b"a")
    door.knock(2, b"a")
    assert len(door.came) == 1
    assert [door.turn(), door.turn()] == [2, 2]
    assert not door.loop.calls, "nobody waits"
    door.knock(3, b"a")
    assert len(door.came) == 3


def test_what_one_client_sends_stays_in_order_and_together() -> None:
    door = Door(take_us=TURN_US)
    door.knock("first", b"1")
    door.knock("second", b"2")
    door.knock("first", b"3")
    door.knock("second", b"4")
    for _ in range(4):
        door.turn()
    assert door.came == [("first", b"1"), ("second", b"24"), ("first", b"3")]


def test_nobody_overtakes_who_waits() -> None:
    door = Door(take_us=TURN_US // 2)
    for client in (1, 2, 3, 4, 5):
        door.knock(client, b"AMQP")
    assert door.turn() == 4
    door.turn()
    door.knock(6, b"AMQP")
    assert [client for client, _ in door.came] == [1, 2, 3, 4, 5, 6]
    door = Door(take_us=TURN_US)
    for client in (1, 2, 3):
        door.knock(client, b"AMQP")
    door.turn()
    door.loop.calls.clear()
    door.handshake_budget._used_us = 0  # as at the start of a turn
    door.knock(4, b"AMQP")
    assert [client for client, _ in door.came] == [1, 2]
