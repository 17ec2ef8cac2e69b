"""A real broker whose wall clock is set while it runs, or while it is down: no message is early or late."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from leveret.client import Channel, Connection, Properties, connect
from leveret.control.calls.blocking import ControlClient
from leveret.testing.processes import LeveretProcess
from leveret.testing.wall import WallClock

HOUR_S = 3600
# time to live of the two kinds of messages; the longer one falls due in no test
BRIEF_S, LONG_S = 3, 1800

pytestmark = pytest.mark.needs("compiler")


async def declared(connection: Connection) -> Channel:
    """Return a channel in confirm mode; declare two queues that dead-letter to a third."""
    channel = await connection.channel()
    await channel.confirm_select()
    await channel.declare_queue("due", durable=True)
    await channel.declare_exchange("later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"})
    await channel.bind_queue("due", "later", "")
    for name, ttl_s in (("brief", BRIEF_S), ("long", LONG_S)):
        dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "due"}
        await channel.declare_queue(name, durable=True, arguments={**dead, "x-message-ttl": ttl_s * 1000})
    await channel.declare_queue("fleeting", durable=True, arguments={"x-expires": LONG_S * 1000})
    return channel


async def send(channel: Channel) -> None:
    """Send one message that falls due soon, and two that do not."""
    channel.publish(b"brief", "", "brief", Properties(delivery_mode=2))
    channel.publish(b"long", "", "long", Properties(delivery_mode=2))
    channel.publish(b"later", "later", "", Properties(delivery_mode=2, headers={"x-delay": LONG_S * 1000}))
    await channel.wait_for_confirms()


async def check(channel: Channel, sent_s: float, wall_ahead_s: float) -> None:
    """Check that the brief message arrives, not early, that the long ones wait, and that nothing has expired."""
    delivery = await anext(await channel.consume("due"))
    assert time.monotonic() - sent_s >= BRIEF_S
    assert delivery.body == b"brief"
    (death,) = delivery.properties.headers["x-death"]
    assert abs(death["time"].timestamp() - time.time() - wall_ahead_s) < HOUR_S / 2
    channel.ack(delivery.delivery_tag)
    assert (await channel.declare_queue("long", passive=True)).message_count == 1
    await channel.declare_queue("fleeting", passive=True)
    assert (await channel.declare_queue("due", passive=True)).message_count == 0


@pytest.fixture
def wall(tmp_path: Path) -> WallClock:
    return WallClock(tmp_path)


@pytest.fixture
def broker(tmp_path: Path, wall: WallClock) -> LeveretProcess:
    process = LeveretProcess(tmp_path / "data")
    process.extra_environment.update(wall.environment())
    return process


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S], ids=["forward", "back"])
async def test_a_wall_clock_that_is_set_makes_nothing_early_and_nothing_late(
    broker: LeveretProcess, wall: WallClock, step_s: int
) -> None:
    with broker:
        async with await connect(broker.url, reconnect=False) as connection:
            channel = await declared(connection)
            sent_s = time.monotonic()
            await send(channel)
            wall.set_ahead(step_s)
            way = "forward" if step_s > 0 else "back"
            broker.said(f"the wall clock was set {way} by 3600.")
            await check(channel, sent_s, step_s)
            with ControlClient(str(broker.data_dir)) as control:
                assert round(control.call("status")["wall_clock_ahead_s"]) == step_s


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S], ids=["forward", "back"])
@pytest.mark.parametrize("how", ["kill", "stop"])
async def test_nor_one_that_is_set_while_the_broker_is_down(
    broker: LeveretProcess, wall: WallClock, how: str, step_s: int
) -> None:
    with broker:
        async with await connect(broker.url, reconnect=False) as connection:
            channel = await declared(connection)
            sent_s = time.monotonic()
            await send(channel)
            broker.kill() if how == "kill" else broker.stop()
        wall.set_ahead(step_s)
        broker.start()
        async with await connect(broker.url, reconnect=False) as connection:
            await check(await connection.channel(), sent_s, step_s)
