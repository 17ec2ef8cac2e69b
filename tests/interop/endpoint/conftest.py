"""Fixtures of the tests of endpoints."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import pytest

from leveret.client import Channel, connect
from leveret.delay import CONVENTIONAL, DIRECT, RoutingTopology


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"e-{uuid.uuid4().hex[:10]}"


@pytest.fixture(params=[CONVENTIONAL, DIRECT], ids=lambda routing: routing.value)
def routing(request: pytest.FixtureRequest) -> RoutingTopology:
    """Both routing topologies, one after the other."""
    assert isinstance(request.param, RoutingTopology)
    return request.param


@pytest.fixture
async def channel(url: str) -> AsyncIterator[Channel]:
    """A channel with confirms on a connection of its own."""
    async with await connect(url, reconnect=False) as connection:
        channel = await connection.channel()
        await channel.confirm_select()
        yield channel
