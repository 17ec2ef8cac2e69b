"""The timeout manager beside native delays, on leveret and RabbitMQ: an upgrade (docs/guides/legacy-timeouts.md)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from leveret.client import ChannelClosed, Connection, Properties, connect
from leveret.delay import CONVENTIONAL, DIRECT, NSERVICEBUS, Layout, RoutingTopology, Sender
from leveret.delay.instant import as_header, from_header, now
from leveret.endpoint.timeouts import TimeoutManager, TimeoutQueues, drain, manager, store
from leveret.endpoint.timeouts.clock import Clock, elapsed_us, wall_us
from leveret.endpoint.timeouts.manager import open_store
from leveret.endpoint.timeouts.order import order
from leveret.endpoint.timeouts.removal import remove
from leveret.testing.postgresql import PostgreSQLProcess
from leveret.wire.frames import FRAME_OVERHEAD
from leveret.wire.properties import encode_header
from leveret.wire.table import Value

from .older import EXPIRE, ROUTE_TO, census_when, declare, managing, older, stored

HOUR = timedelta(hours=1)
SOON = timedelta(milliseconds=100)


@pytest.fixture
def file(tmp_path: object) -> str:
    return f"sqlite:///{tmp_path}/t.sqlite"


@pytest.mark.parametrize("routing", [CONVENTIONAL, DIRECT])
async def test_deferred_messages_arrive_when_they_are_due(url: str, database: str, routing: RoutingTopology) -> None:
    async with older(url, routing) as (connection, endpoint), managing(connection, endpoint, database):
        for delay_ms in (300, 0, 200, 1, 100):
            await endpoint.defer(str(delay_ms).encode(), timedelta(milliseconds=delay_ms))
        assert {(await endpoint.received()).body for _ in range(5)} == {b"300", b"0", b"200", b"1", b"100"}
        await stored(endpoint, database, 0)


async def test_a_message_arrives_as_it_was_sent(url: str, file: str) -> None:
    async with older(url) as (connection, endpoint), managing(connection, endpoint, file):
        due = await endpoint.defer(b"\x00body", SOON, headers={"mine": "yes", "number": 7})
        properties = (await endpoint.received()).properties
        headers = properties.headers or {}
        assert (properties.content_type, properties.delivery_mode) == ("text/json", 2)
        assert (headers["mine"], headers["number"], headers["NServiceBus.IsDeferredMessage"]) == ("yes", 7, "True")
        assert from_header(str(headers["NServiceBus.TimeSent"])) >= due
        assert headers["NServiceBus.RelatedToTimeoutId"]


async def test_what_was_stored_before_the_upgrade_is_sent_and_what_is_new_goes_native(url: str, file: str) -> None:
    async with older(url) as (connection, endpoint):
        async with managing(connection, endpoint, file):
            await endpoint.defer(b"stored", timedelta(seconds=2))
            await stored(endpoint, file, 1)
        async with managing(connection, endpoint, file), Sender(connection, NSERVICEBUS, CONVENTIONAL) as native:
            headers: dict[str, Value] = {EXPIRE: as_header(now() + timedelta(seconds=1))}
            await native.send(b"native", endpoint.destination, 1, Properties(headers=headers))
            # on a slow machine the stored one may have been sent already
            assert open_store(endpoint.name, file).census(0).pending <= 1, "the new one is in no database"
            assert {(await endpoint.received()).body for _ in range(2)} == {b"native", b"stored"}


async def test_an_earlier_one_wakes_who_waits_for_a_later_one(url: str, file: str) -> None:
    async with older(url) as (connection, endpoint), managing(connection, endpoint, file):
        await endpoint.defer(b"later", HOUR)
        await stored(endpoint, file, 1)
        await endpoint.defer(b"sooner", SOON)
        assert (await endpoint.received()).body == b"sooner"


async def test_what_is_no_timeout_goes_to_the_error_queue_and_holds_nobody_up(url: str, file: str) -> None:
    async with older(url) as (connection, endpoint), managing(connection, endpoint, file):
        await endpoint.put(b"poison", Properties(headers={"mine": "yes"}))
        await endpoint.defer(b"good", timedelta(0))
        assert (await endpoint.received()).body == b"good"
        failed = await endpoint.channel.get(f"{endpoint.name}.error", no_ack=True)
        assert failed is not None
        assert failed.body == b"poison"
        headers = failed.properties.headers or {}
        assert headers["mine"] == "yes"
        assert headers["NServiceBus.FailedQ"] == f"{endpoint.name}.Timeouts"
        assert "no header NServiceBus.Timeout.Expire" in str(headers["NServiceBus.ExceptionInfo.Message"])


@pytest.mark.parametrize("routing", [CONVENTIONAL, DIRECT])
async def test_a_missing_destination_keeps_its_message_and_holds_nobody_up(
    url: str, file: str, routing: RoutingTopology
) -> None:
    async with older(url, routing) as (connection, endpoint), managing(connection, endpoint, file):
        missing = f"{endpoint.name}.Missing"
        await endpoint.defer(b"to nobody", timedelta(0), missing)
        for body in (b"1", b"2"):
            await endpoint.defer(body, timedelta(0))
        assert {(await endpoint.received()).body, (await endpoint.received()).body} == {b"1", b"2"}
        failing = (await census_when(endpoint, file, lambda census: bool(census.failing))).failing
        assert failing[0].destination == missing
        assert failing[0].error
        await declare(endpoint.channel, missing, routing)
        consumer = await endpoint.channel.consume(missing, no_ack=True)
        assert (await asyncio.wait_for(anext(consumer), 30)).body == b"to nobody"


async def test_what_never_finds_its_destination_goes_to_the_error_queue_and_can_be_retried(
    url: str, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager, "ATTEMPTS_MAX", 1)
    async with older(url) as (connection, endpoint), managing(connection, endpoint, file):
        missing = f"{endpoint.name}.Missing"
        await endpoint.defer(b"lost?", timedelta(0), missing)
        errors = await endpoint.channel.consume(f"{endpoint.name}.error", no_ack=True)
        failed = await asyncio.wait_for(anext(errors), 30)
        headers = failed.properties.headers or {}
        assert "does not exist" in str(headers["NServiceBus.ExceptionInfo.Message"])
        await stored(endpoint, file, 0)
        await declare(endpoint.channel, missing)
        consumer = await endpoint.channel.consume(missing, no_ack=True)
        await endpoint.channel.publish(failed.body, "", str(headers["NServiceBus.FailedQ"]), failed.properties)
        assert (await asyncio.wait_for(anext(consumer), 30)).body == b"lost?"


@pytest.mark.parametrize("spare", [40, 2000])
async def test_headers_without_room_for_more_hold_nobody_up(
    url: str, file: str, monkeypatch: pytest.MonkeyPatch, spare: int
) -> None:
    """Added headers must not make a frame too large: that would end the connection."""
    monkeypatch.setattr(manager, "ATTEMPTS_MAX", 1)
    async with older(url) as (connection, endpoint), managing(connection, endpoint, file):
        timeout = {EXPIRE: as_header(now()), ROUTE_TO: endpoint.destination}
        for body, headers in ((b"poison", {}), (b"timeout", timeout)):
            properties = Properties(headers={"filler": "", **headers}, message_id="m", delivery_mode=2)
            room = connection.core.frame_max - FRAME_OVERHEAD - len(encode_header(properties, 0)) - spare
            await endpoint.put(body, replace(properties, headers={"filler": "x" * room, **headers}))
        errors = await endpoint.channel.consume(f"{endpoint.name}.error", no_ack=True)
        failed = [(await asyncio.wait_for(anext(errors), 30)).body for _ in range(1 if spare > 1000 else 2)]
        assert failed == ([b"poison"] if spare > 1000 else [b"poison", b"timeout"])
        await endpoint.defer(b"good", timedelta(0))
        got = {(await endpoint.received()).body for _ in range(2 if spare > 1000 else 1)}
        assert got == ({b"timeout", b"good"} if spare > 1000 else {b"good"})


async def test_a_saga_s_timeouts_are_cleared(url: str, file: str) -> None:
    async with older(url) as (connection, endpoint), managing(connection, endpoint, file):
        await endpoint.defer(b"cleared", HOUR, headers={"NServiceBus.SagaId": "S-1"})
        await endpoint.defer(b"kept", HOUR, headers={"NServiceBus.SagaId": "S-2"})
        await stored(endpoint, file, 2)
        headers: dict[str, Value] = {"NServiceBus.ClearTimeouts": "True", "NServiceBus.SagaId": "S-1"}
        await endpoint.put(b"", Properties(headers=headers))
        await stored(endpoint, file, 1)


async def test_two_processes_of_an_endpoint_send_each_message_once(url: str, database: str) -> None:
    async with older(url) as (connection, endpoint), await connect(url, reconnect=False) as second:
        async with managing(connection, endpoint, database), managing(second, endpoint, database):
            for number in range(60):
                await endpoint.defer(str(number).encode(), timedelta(milliseconds=number))
            got = sorted([int((await endpoint.received()).body) for _ in range(60)])
        assert got == list(range(60))
        assert (await endpoint.channel.declare_queue(endpoint.destination, passive=True)).message_count == 0


async def test_processes_with_databases_of_their_own_leave_each_other_their_orders(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """This is wrong use, but two machines with default settings do it: it costs time, not messages."""
    databases = [f"sqlite:///{tmp_path}/{number}.sqlite" for number in (1, 2)]
    async with older(url) as (connection, endpoint), await connect(url, reconnect=False) as second:
        async with managing(connection, endpoint, databases[0]), managing(second, endpoint, databases[1]):
            for number in range(20):
                await endpoint.defer(str(number).encode(), SOON)
            assert sorted([int((await endpoint.received()).body) for _ in range(20)]) == list(range(20))
        texts = [record.getMessage() for record in caplog.records]
        assert all(text.count("all processes must use the same one") == 1 for text in texts)
        assert len(texts) <= 2


async def test_a_drain_leaves_the_orders_of_another_database(url: str, file: str, tmp_path: Path) -> None:
    async with older(url) as (connection, endpoint):
        queues, timeouts = TimeoutQueues(endpoint.name), open_store(endpoint.name, file)
        timeouts.create()
        await endpoint.channel.publish(b"", "", queues.dispatcher, order("t", "claim", "another"))
        await endpoint.channel.publish(b"", "", queues.dispatcher, order("t", "claim", timeouts.identity))
        await drain(connection, timeouts, queues, NSERVICEBUS)
        assert any("messages are in the queue" in reason for reason in await remove(connection, timeouts, queues))
        timeouts.close()


async def test_a_clock_that_steps_forward_makes_nothing_early(url: str, file: str) -> None:
    step_us = 0
    clock = Clock(lambda: wall_us() + step_us, elapsed_us)
    async with older(url) as (connection, endpoint), managing(connection, endpoint, file, clock):
        await endpoint.defer(b"in an hour", HOUR)
        await stored(endpoint, file, 1)
        step_us = 2 * 3_600_000_000
        await endpoint.defer(b"soon", SOON)
        assert (await endpoint.received()).body == b"soon"
        await stored(endpoint, file, 1)


async def test_it_goes_on_over_another_connection(url: str, file: str) -> None:
    async with older(url) as (_, endpoint):
        timeouts = TimeoutManager(endpoint.name, file, error_queue=f"{endpoint.name}.error")
        for body in (b"1", b"2"):
            connection = await connect(url, reconnect=False)
            await timeouts.start(connection)
            await endpoint.defer(body, SOON)
            assert (await endpoint.received()).body == body
            await stored(endpoint, file, 0)
            await connection.close()
            await timeouts.stop()
        timeouts.close()


async def test_a_database_that_comes_back_is_used_again(url: str, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with older(url) as (connection, endpoint), managing(connection, endpoint, file):
        failures = 3
        apply = store.TimeoutStore.apply

        def failing(self: store.TimeoutStore, requests: object) -> None:
            nonlocal failures
            if failures:
                failures -= 1
                raise manager.TimeoutsUnavailable("the database is away")
            apply(self, requests)  # type: ignore[arg-type]

        monkeypatch.setattr(store.TimeoutStore, "apply", failing)
        await endpoint.defer(b"patient", timedelta(0))
        assert (await endpoint.received()).body == b"patient"
        assert failures == 0


async def test_an_exchange_that_goes_after_it_was_used_holds_nobody_up(url: str, file: str) -> None:
    async with older(url) as (connection, endpoint), managing(connection, endpoint, file):
        gone = f"{endpoint.name}.Gone"
        await declare(endpoint.channel, gone)
        for _ in range(2):
            await endpoint.defer(b"to both", timedelta(0), gone)
            await endpoint.defer(b"to both", timedelta(0))
            assert (await endpoint.received()).body == b"to both"
            await stored(endpoint, file, 0)
        await endpoint.channel.delete_exchange(gone)
        due = timedelta(milliseconds=300)  # due together, so sent together
        for body in (b"0", b"1", b"2"):
            await endpoint.defer(body, due)
            await endpoint.defer(b"to nobody", due, gone)
        got: set[bytes] = set()
        while got != {b"0", b"1", b"2"}:  # the channel was closed with messages under way, which may be doubled
            got.add((await endpoint.received()).body)
        failing = (await census_when(endpoint, file, lambda census: bool(census.failing))).failing
        assert "does not exist" in failing[0].error
        await declare(endpoint.channel, gone)
        await stored(endpoint, file, 0)
        assert (await endpoint.channel.declare_queue(gone, passive=True)).message_count == 5


async def test_no_more_is_claimed_than_can_be_sent_before_claims_lapse(
    url: str, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager, "BATCH", 2)
    monkeypatch.setattr(manager, "BACKLOG", 4)
    gate, held, send, wait = asyncio.Event(), asyncio.Event(), manager.Outbox.send, manager._elapsed_or_set

    async def gated(self: manager.Outbox, messages: list[manager.Outgoing]) -> list[BaseException | None]:
        await gate.wait()
        return await send(self, messages)

    async def waiting(event: asyncio.Event, timeout_s: float) -> None:
        if event is timeouts._sent:
            held.set()
        await wait(event, timeout_s)

    monkeypatch.setattr(manager.Outbox, "send", gated)
    monkeypatch.setattr(manager, "_elapsed_or_set", waiting)
    async with older(url) as (connection, endpoint), managing(connection, endpoint, file) as timeouts:
        for number in range(40):
            await endpoint.defer(str(number).encode(), timedelta(0))
        await stored(endpoint, file, 40)
        await asyncio.wait_for(held.wait(), 30)
        assert (await census_when(endpoint, file, lambda _: True)).claimed <= 10
        gate.set()
        assert sorted([int((await endpoint.received()).body) for _ in range(40)]) == list(range(40))


@pytest.mark.needs("postgresql")
async def test_a_postgresql_that_is_killed_and_started_again_loses_nothing(broker: str) -> None:
    with PostgreSQLProcess() as server:
        async with older(broker) as (connection, endpoint), managing(connection, endpoint, server.url):
            await endpoint.defer(b"before", timedelta(seconds=1))
            await stored(endpoint, server.url, 1)
            await asyncio.to_thread(server.kill)
            await endpoint.defer(b"meanwhile", timedelta(0))
            await asyncio.to_thread(server.start)
            assert {(await endpoint.received()).body for _ in range(2)} == {b"before", b"meanwhile"}


# the end of the upgrade


async def test_a_drain_moves_what_waits_into_the_levels(url: str, database: str) -> None:
    async with older(url) as (connection, endpoint):
        async with managing(connection, endpoint, database):
            for number in range(3):
                await endpoint.defer(str(number).encode(), timedelta(seconds=1.5 + number / 10))
            await stored(endpoint, database, 3)
        await endpoint.defer(b"still in the queue", timedelta(seconds=2))
        timeouts = open_store(endpoint.name, database)
        drained = await drain(connection, timeouts, TimeoutQueues(endpoint.name), NSERVICEBUS)
        assert (drained.moved, drained.kept) == (4, {})
        assert timeouts.census(0).pending == 0
        got = [await endpoint.received() for _ in range(4)]
        assert {one.body for one in got} == {b"0", b"1", b"2", b"still in the queue"}
        for delivery in got:
            headers = delivery.properties.headers or {}
            units = headers["NServiceBus.Transport.RabbitMQ.DelayInSeconds"]
            assert isinstance(units, int)
            due_by_headers = from_header(str(headers["NServiceBus.TimeSent"])) + timedelta(seconds=units)
            assert due_by_headers >= from_header(str(headers[EXPIRE])), "a migration would deliver it early"
        timeouts.close()


async def test_a_drain_keeps_what_it_can_not_move_and_says_why(url: str, file: str) -> None:
    short = Layout("t.short", levels=4)
    async with older(url) as (connection, endpoint):
        await endpoint.defer(b"too far", HOUR)
        await endpoint.defer(b"to nobody", SOON, f"{endpoint.name}.Missing")
        await endpoint.defer(b"good", timedelta(0))
        timeouts = open_store(endpoint.name, file)
        timeouts.create()
        for _ in range(2):
            drained = await drain(connection, timeouts, TimeoutQueues(endpoint.name), short)
            reasons = sorted(drained.kept.values())
            assert len(reasons) == 2
            assert any("does not exist" in reason for reason in reasons)
            assert any("too long" in reason for reason in reasons)
        assert (await endpoint.received()).body == b"good"
        assert timeouts.census(0).pending == 2
        assert timeouts.claim("next", timeouts.next_ready_us() or 0, 1), "what stays is claimed by nobody"
        timeouts.close()


async def test_a_drain_takes_back_what_was_ordered_and_never_sent(url: str, file: str) -> None:
    async with older(url) as (connection, endpoint):
        timeouts = open_store(endpoint.name, file)
        timeouts.create()
        await endpoint.defer(b"ordered", timedelta(0))
        first = await drain(connection, timeouts, TimeoutQueues(endpoint.name), Layout("t.tiny", levels=1))
        assert first.moved == 1
        await endpoint.received()
        due = await endpoint.defer(b"ordered", timedelta(0))
        queues = TimeoutQueues(endpoint.name)
        delivery = await endpoint.channel.get(queues.timeouts, no_ack=True)
        assert delivery is not None
        requests, _ = manager.sorted_out([delivery])
        timeouts.apply(requests)
        ids = timeouts.claim("dead", wall_us(), 9)
        await endpoint.channel.publish(b"", "", queues.dispatcher, order(ids[0], "dead", timeouts.identity))
        drained = await drain(connection, timeouts, queues, NSERVICEBUS)
        assert drained.moved == 1
        assert (await endpoint.received()).body == b"ordered"
        assert due <= now()
        timeouts.close()


async def test_a_drain_waits_for_what_another_process_claimed(
    url: str, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "CLAIM_US", 300_000)
    async with older(url) as (connection, endpoint):
        timeouts = open_store(endpoint.name, file)
        timeouts.create()
        await endpoint.defer(b"claimed", timedelta(0))
        delivery = await endpoint.channel.get(f"{endpoint.name}.Timeouts", no_ack=True)
        assert delivery is not None
        timeouts.apply(manager.sorted_out([delivery])[0])
        assert timeouts.claim("dead", wall_us(), 9)
        waits: list[float] = []
        drained = await drain(connection, timeouts, TimeoutQueues(endpoint.name), NSERVICEBUS, waiting=waits.append)
        assert drained.moved == 1
        assert waits
        assert (await endpoint.received()).body == b"claimed"
        timeouts.close()


async def test_nothing_is_removed_while_anything_waits(url: str, database: str) -> None:
    async with older(url) as (connection, endpoint):
        queues, timeouts = TimeoutQueues(endpoint.name), open_store(endpoint.name, database)
        async with managing(connection, endpoint, database):
            await endpoint.defer(b"waits", HOUR)
            await stored(endpoint, database, 1)
            refused = await remove(connection, timeouts, queues)
            assert any("timeouts are pending in" in reason and "(1)" in reason for reason in refused)
            assert sum("consumers read the queue" in reason for reason in refused) == 2
        await endpoint.defer(b"queued", HOUR)
        assert any("messages are in the queue" in reason for reason in await remove(connection, timeouts, queues))
        assert await drain(connection, timeouts, queues, NSERVICEBUS)
        assert await remove(connection, timeouts, queues) == []
        assert set((await queues.info(connection)).values()) == {None}
        assert not timeouts.exists()
        await exchange_is_gone(connection, queues.timeouts)
        await exchange_is_gone(connection, queues.dispatcher)
        assert await remove(connection, timeouts, queues) == [], "there is nothing left to do"
        timeouts.close()


async def test_force_removes_it_all(url: str, file: str) -> None:
    async with older(url) as (connection, endpoint):
        queues, timeouts = TimeoutQueues(endpoint.name), open_store(endpoint.name, file)
        async with managing(connection, endpoint, file):
            await endpoint.defer(b"waits", HOUR)
            await stored(endpoint, file, 1)
        await endpoint.defer(b"queued", HOUR)
        assert await remove(connection, timeouts, queues, force=True) == []
        assert set((await queues.info(connection)).values()) == {None}
        assert not timeouts.exists()
        timeouts.close()


async def exchange_is_gone(connection: Connection, name: str) -> None:
    async with await connection.channel() as channel:
        with pytest.raises(ChannelClosed, match="404"):
            await channel.declare_exchange(name, kind="fanout", passive=True)
