"""A closed channel without references is freed with all that it held, without the garbage collector."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from leveret.client import ChannelClosed

from .client_in_memory import AsyncLine, BlockingLine, Line

ROUNDS = 5
BODY = b"x" * 1000


async def closes(line: Line, channel: Any) -> None:
    await line.do(channel.close)


async def is_closed_by_the_broker_before_it_confirms(line: Line, channel: Any) -> None:
    await line.do(channel.confirm_select)
    published = channel.publish(BODY, "", "q", mandatory=True)
    peer = line.peer
    peer.close_channel(peer.channels[channel._core.number], 406, "enough")
    line.answer()
    if isinstance(published, asyncio.Future):
        assert isinstance(published.exception(), ChannelClosed)
    line.settle()


async def consumes(line: Line, channel: Any) -> None:
    await line.do(lambda: channel.publish(BODY, "", "q"))
    await line.do(lambda: channel.consume("q"))
    await line.do(channel.close)


async def fetches(line: Line, channel: Any) -> None:
    await line.do(lambda: channel.publish(BODY, "", "q"))
    assert await line.do(lambda: channel.get("q"))
    await line.do(channel.close)


async def calls(line: Line, channel: Any) -> None:
    await line.do(channel.close)
    rpc = await line.do(line.rpc)
    await line.do(rpc.close)


@pytest.fixture(autouse=True)
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def alive() -> Counter[str]:
    kinds = (type(each) for each in gc.get_objects())
    return Counter(each.__name__ for each in kinds if str(each.__module__).startswith("leveret.client"))


@pytest.mark.parametrize("doing", [closes, is_closed_by_the_broker_before_it_confirms, consumes, fetches, calls])
@pytest.mark.parametrize("make", [AsyncLine, BlockingLine])
async def test_nothing_is_left_of_a_channel_that_was_closed(
    make: type[Line], doing: Callable[[Line, Any], Awaitable[None]]
) -> None:
    line = make()

    async def one_life() -> None:
        channel = await line.do(line.channel)
        await line.do(lambda: channel.declare_queue("q"))
        await doing(line, channel)

    await one_life()
    before = alive()
    for _ in range(ROUNDS):
        await one_life()
    left = alive()
    left.subtract(before)
    assert {kind: count for kind, count in left.items() if count >= ROUNDS} == {}
