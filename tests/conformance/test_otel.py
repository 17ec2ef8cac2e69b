"""Traces: what the client adds and records, what the broker leaves unchanged, and spans from its firehose."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from click.testing import CliRunner
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from leveret.cli import otel as otel_command
from leveret.cli.main import main
from leveret.client import (
    BlockingConnection,
    Channel,
    Connection,
    Delivery,
    Properties,
    RpcServer,
    Unroutable,
    connect,
)
from leveret.control.calls.blocking import ControlClient
from leveret.otel.client import instrument
from leveret.otel.firehose import Firehose, FirehoseEvent
from leveret.otel.recorder import record
from leveret.testing.processes import LeveretProcess

W3C = TraceContextTextMapPropagator()
SENT: dict[str, Any] = {
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "tracestate": "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7",
    "baggage": "user=alice,stage=test",
}
TRACE_ID = int("0af7651916cd43dd8448eb211c80319c", 16)
SPAN_ID = int("b7ad6b7169203331", 16)


class Recorded:
    """A tracer whose spans are kept in memory."""

    def __init__(self, **options: Any) -> None:
        self.provider = TracerProvider(**options)
        self._exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def named(self, start: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name.startswith(start)]


async def until(holds: Callable[[], bool]) -> None:
    """Wait for a condition, up to the test's own time limit."""
    while not holds():  # noqa: ASYNC110 - another thread or process makes it so
        await asyncio.sleep(0.005)


@pytest.fixture(scope="module")
def process() -> Iterator[LeveretProcess]:
    with LeveretProcess() as found:
        yield found


@pytest.fixture
async def connection(process: LeveretProcess) -> AsyncIterator[Connection]:
    async with await connect(process.url, reconnect=False) as found:
        yield found


# -- the broker leaves the context as it is ----------------------------------------------------------------------------


async def plain(channel: Channel) -> str:
    await channel.declare_queue("plain")
    channel.publish(b"x", routing_key="plain", properties=Properties(headers=dict(SENT)))
    return "plain"


async def dead(channel: Channel) -> str:
    await channel.declare_queue("dead")
    arguments = {"x-message-ttl": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    await channel.declare_queue("dying", arguments=arguments)
    channel.publish(b"x", routing_key="dying", properties=Properties(headers=dict(SENT), delivery_mode=2))
    return "dead"


async def delayed(channel: Channel) -> str:
    await channel.declare_exchange("later", "x-delayed-message", arguments={"x-delayed-type": "fanout"})
    await channel.declare_queue("delayed")
    await channel.bind_queue("delayed", "later")
    channel.publish(b"x", "later", properties=Properties(headers=SENT | {"x-delay": 2}))
    return "delayed"


async def stream(channel: Channel) -> str:
    await channel.declare_queue("stream", arguments={"x-queue-type": "stream"})
    channel.publish(b"x", routing_key="stream", properties=Properties(headers=dict(SENT)))
    return "stream"


@pytest.mark.parametrize("way", [plain, dead, delayed, stream])
async def test_the_context_passes_untouched(connection: Connection, way: Callable[[Channel], Any]) -> None:
    async with await connection.channel() as channel:
        await channel.qos(10)
        queue = await way(channel)
        consumer = await channel.consume(queue, arguments={"x-stream-offset": "first"} if queue == "stream" else None)
        headers = (await anext(consumer)).properties.headers or {}
        assert {name: headers.get(name) for name in SENT} == SENT


async def test_the_context_passes_a_direct_reply(connection: Connection) -> None:
    async with await connection.channel() as asking, await connection.channel() as answering:
        replies = await asking.consume("amq.rabbitmq.reply-to", no_ack=True)
        await asking.declare_queue("questions")
        given = Properties(reply_to="amq.rabbitmq.reply-to", headers=dict(SENT))
        asking.publish(b"?", routing_key="questions", properties=given)
        question = await anext(await answering.consume("questions", no_ack=True))
        assert question.properties.reply_to is not None
        answer = Properties(headers=question.properties.headers)
        answering.publish(b"!", routing_key=question.properties.reply_to, properties=answer)
        assert (await anext(replies)).properties.headers == SENT


# -- the client --------------------------------------------------------------------------------------------------------


def ids(span: ReadableSpan) -> tuple[int, int | None]:
    """Return a span's own id and its parent's."""
    return span.context.span_id, span.parent.span_id if span.parent else None


def current() -> int:
    return trace.get_current_span().get_span_context().span_id


async def test_a_message_is_one_trace_from_publish_to_settlement(connection: Connection) -> None:
    found = Recorded()
    shop = found.provider.get_tracer("shop")
    instrument(connection, found.provider, W3C)
    async with await connection.channel(confirms=True) as channel:
        await channel.declare_queue("orders")
        with shop.start_as_current_span("checkout"):
            await channel.publish(b"ham", routing_key="orders", properties=Properties(message_id="m1"))
        async for delivery in await channel.consume("orders"):
            shop.start_span("pack").end()
            assert delivery.ack()
            assert current() == 0
            break
    checkout, published, packed, processed = (
        found.named(name)[0] for name in ("checkout", "publish orders", "pack", "process orders")
    )
    assert {span.context.trace_id for span in found.spans} == {checkout.context.trace_id}
    parents = [ids(span)[1] for span in (published, processed, packed)]
    assert parents == [ids(checkout)[0], ids(published)[0], ids(processed)[0]]
    assert [span.kind for span in (published, processed)] == [SpanKind.PRODUCER, SpanKind.CONSUMER]
    common = {
        "messaging.system": "rabbitmq", "messaging.destination.name": "orders",
        "messaging.rabbitmq.destination.routing_key": "orders", "messaging.message.body.size": 3,
        "messaging.message.id": "m1",
    }  # fmt: skip
    assert dict(published.attributes or {}) == common | {
        "messaging.operation.name": "publish", "messaging.operation.type": "send",
    }  # fmt: skip
    assert dict(processed.attributes or {}) == common | {
        "messaging.operation.name": "process", "messaging.operation.type": "process",
        "messaging.rabbitmq.message.delivery_tag": 1, "messaging.destination.subscription.name": "orders",
    }  # fmt: skip


async def test_each_delivery_is_current_until_the_next_and_ends_when_it_is_settled(connection: Connection) -> None:
    found = Recorded()
    instrument(connection, found.provider, W3C)
    async with await connection.channel() as channel:
        await channel.declare_queue("several")
        for number in range(4):
            channel.publish(b"%d" % number, routing_key="several")
        consumer = await channel.consume("several")
        seen = []
        with found.provider.get_tracer("shop").start_as_current_span("all") as outer:
            for _ in range(4):
                delivery = await anext(consumer)
                seen.append(current())
            assert not found.named("process")
            channel.ack(3, multiple=True)
            assert [ids(span)[0] for span in found.named("process")] == seen[:3]
            assert current() == seen[3]
            delivery.nack(requeue=True)
            assert current() == outer.get_span_context().span_id
        again = await anext(consumer)
        assert again.redelivered
        channel.ack(0, multiple=True)
        await consumer.cancel()
        await channel.publish(b"x", routing_key="several")
        received = await channel.consume("several", no_ack=True)
        assert (await anext(received)).body == b"x"
    assert [span.name for span in found.spans if span.kind == SpanKind.CONSUMER] == [
        *["process several"] * 5, "receive several",
    ]  # fmt: skip


async def test_what_fails_is_an_error(connection: Connection) -> None:
    found = Recorded()
    instrument(connection, found.provider, W3C)
    async with await connection.channel(confirms=True) as channel:
        with pytest.raises(Unroutable):
            await channel.publish(b"x", routing_key="nowhere at all", mandatory=True)
        with pytest.raises(ValueError, match="255"):
            channel.publish(b"x", routing_key="k" * 256)
        await channel.declare_queue("bad")
        await channel.publish(b"x", routing_key="bad")
        delivery = await channel.get("bad")
        assert delivery is not None
        try:
            raise ZeroDivisionError
        except ZeroDivisionError:
            delivery.reject(requeue=False)
        assert await channel.get("bad") is None
    errors = [(span.attributes or {}).get("error.type") for span in found.spans
              if span.status.status_code == StatusCode.ERROR]  # fmt: skip
    assert errors == ["Unroutable", "ValueError", "ZeroDivisionError"]


async def test_a_request_its_handler_and_its_reply_are_one_trace(connection: Connection) -> None:
    found = Recorded()
    shop = found.provider.get_tracer("shop")
    instrument(connection, found.provider, W3C)
    server = RpcServer(connection)

    @server.serve("prices")
    async def price(request: Delivery) -> bytes:
        with shop.start_as_current_span("look up"):
            await asyncio.sleep(0)
        if request.body == b"?":
            raise LookupError("no price")
        return b"1"

    async with await connection.channel() as channel, await connection.rpc() as rpc:
        await channel.declare_queue("prices")
        async with server:
            await asyncio.gather(*(rpc.call(b"ham", "", "prices") for _ in range(3)))
            await channel.publish(b"?", routing_key="prices")
            await until(lambda: len(found.named("process")) == 4)
    requests, processed = found.named("publish prices"), found.named("process prices")
    looked_up = found.named("look up")
    replies = [span for span in found.named("publish") if span not in requests]
    assert sorted(str(ids(span)[1]) for span in processed) == sorted(str(ids(span)[0]) for span in requests)
    assert sorted(str(ids(span)[1]) for span in looked_up) == sorted(str(ids(span)[0]) for span in processed)
    assert {ids(span)[1] for span in replies} == {ids(span)[0] for span in processed if span.status.is_ok}
    assert [(span.attributes or {}).get("error.type") for span in processed if not span.status.is_ok] == ["LookupError"]


async def test_a_context_that_is_there_is_kept_and_nothing_sampled_is_nothing_told(connection: Connection) -> None:
    found = Recorded(sampler=ALWAYS_OFF)
    plain = await connection.channel()
    instrument(connection, found.provider, W3C)
    async with await connection.channel() as channel:
        await plain.declare_queue("passing")
        channel.publish(b"x", routing_key="passing", properties=Properties(headers=dict(SENT)))
        channel.publish(b"x", routing_key="passing")
        consumer = await plain.consume("passing", no_ack=True)
        given = [(await anext(consumer)).headers for _ in range(2)]
    assert given[0] == SENT
    assert int(str(given[1]["traceparent"])[-2:], 16) & 1 == 0
    assert found.spans == []


def test_a_blocking_connection_has_the_same_spans(process: LeveretProcess) -> None:
    found = Recorded()
    shop = found.provider.get_tracer("shop")
    with BlockingConnection(process.url, reconnect=False) as connection:
        instrument(connection, found.provider, W3C)
        with connection.channel(confirms=True) as channel:
            for queue in ("parcels", "letters"):
                channel.declare_queue(queue)
            with shop.start_as_current_span("checkout"):
                for queue in [*["parcels"] * 4, *["letters"] * 2]:
                    channel.publish(b"x", routing_key=queue)
            with pytest.raises(ValueError, match="255"):
                channel.publish(b"x", routing_key="k" * 256)
            channel.wait_for_confirms()
            got = channel.get("parcels")
            assert got is not None
            shop.start_span("weigh").end()
            assert got.ack()
            assert current() == 0
            channel.consume("parcels", prefetch_count=2)
            for _ in range(2):
                assert channel.next_delivery()
                shop.start_span("pack").end()
            assert current() != 0
            channel.nack(got.delivery_tag + 2, multiple=True, requeue=False)
            assert current() == 0
            several = channel.deliveries(1)
            assert current() == 0
            several[0].reject(requeue=False)
            told: list[int] = []
            channel.consume("letters", no_ack=True, deliver=lambda delivery: told.append(current()))
            while len(told) < 2:
                channel.receive(1)
            assert 0 not in told
            assert current() == 0
    published = [*found.named("publish parcels"), *found.named("publish letters")]
    processed, received = found.named("process parcels"), found.named("receive letters")
    consumed = [*processed, *received]
    assert [ids(span)[1] for span in published] == [ids(found.named("checkout")[0])[0]] * 6
    assert sorted(str(ids(span)[1]) for span in consumed) == sorted(str(ids(span)[0]) for span in published)
    packed = [found.named("weigh")[0], *found.named("pack")]
    assert [ids(span)[1] for span in packed] == [ids(span)[0] for span in processed[:3]]
    assert told == [ids(span)[0] for span in received]
    assert [span.name for span in found.spans if span.status.status_code == StatusCode.ERROR] == [
        f"publish {'k' * 256}",
    ]  # fmt: skip


# -- the broker --------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def recording(process: LeveretProcess, found: Recorded, vhost: str = "") -> AsyncIterator[None]:
    """Turn the firehose on and record it; vhost "" is the default one."""
    with ControlClient(str(process.data_dir)) as control:
        control.call("trace_on", vhost=vhost or "/")
        stopping, ready = asyncio.Event(), asyncio.Event()
        url = process.url.replace("%2F", vhost or "%2F")
        task = asyncio.create_task(record(url, found.provider.get_tracer("broker"), stopping, ready))
        await ready.wait()
        try:
            yield
        finally:
            stopping.set()
            await task
            control.call("trace_off", vhost=vhost or "/")


async def test_the_brokers_spans_follow_the_messages_context(process: LeveretProcess, connection: Connection) -> None:
    found = Recorded()
    async with recording(process, found), await connection.channel() as channel:
        await channel.declare_exchange("shop", "fanout")
        await channel.declare_queue("packing")
        await channel.bind_queue("packing", "shop")
        await channel.confirm_select()
        await channel.publish(b"ham", "shop", "now", Properties(headers=dict(SENT), delivery_mode=2, message_id="m1"))
        await channel.publish(b"no context", "shop", "now")
        unsampled = SENT["traceparent"][:-1] + "0"
        await channel.publish(b"not sampled", "shop", "now", Properties(headers={"traceparent": unsampled}))
        consumer = await channel.consume("packing", no_ack=True)
        for _ in range(3):
            await anext(consumer)
        await until(lambda: len(found.spans) >= 2)
    received, delivered = sorted(found.spans, key=lambda span: span.name, reverse=True)
    assert (received.name, delivered.name) == ("receive shop", "deliver packing")
    assert received.context.trace_id == delivered.context.trace_id == TRACE_ID
    assert received.parent is not None
    assert delivered.parent is not None
    assert (received.parent.span_id, delivered.parent.span_id) == (SPAN_ID, received.context.span_id)
    known = received.attributes or {}
    assert known["leveret.routed_queues"] == ("packing",)
    assert (known["leveret.confirm"], known["messaging.message.id"]) == ("ack", "m1")
    assert received.start_time == delivered.start_time
    assert (received.end_time or 0) > (received.start_time or 0)  # its confirm waited for the disk
    assert (delivered.attributes or {})["messaging.destination.name"] == "shop:now:packing"


async def test_a_hop_over_a_federation_link_belongs_to_the_same_trace(
    process: LeveretProcess, connection: Connection
) -> None:
    """The link's upstream is another virtual host of the same broker; for the link that makes no difference."""
    found = Recorded()
    with ControlClient(str(process.data_dir)) as control:
        control.call("add_vhost", name="hq", creator="guest")
        upstream = {"vhost": "hq", "component": "federation-upstream", "name": "ewr"}
        control.call("set_parameter", **upstream, value={"uri": process.url})
        policy = {"vhost": "hq", "name": "all", "pattern": "^flights$", "apply_to": "exchanges"}
        control.call("set_policy", **policy, definition={"federation-upstream": "ewr"})
        async with (
            await connect(process.url.replace("%2F", "hq"), reconnect=False) as downstream,
            recording(process, found, "hq"),
        ):
            there, here = await downstream.channel(), await connection.channel()
            await here.declare_exchange("flights", "fanout")
            await there.declare_exchange("flights", "fanout")
            await there.declare_queue("desk")
            await there.bind_queue("desk", "flights")
            await until(lambda: [link["unbound"] for link in control.call("federation_status")] == [0])
            await here.confirm_select()
            await here.publish(b"UA 1", "flights", "", Properties(headers=dict(SENT), delivery_mode=2))
            headers = (await anext(await there.consume("desk", no_ack=True))).properties.headers or {}
            await until(lambda: len(found.spans) >= 2)
    assert {name: headers.get(name) for name in SENT} == SENT
    (hop,) = found.named("hop flights")
    (delivered,) = found.named("deliver desk")
    assert hop.context.trace_id == TRACE_ID
    assert delivered.parent is not None
    assert delivered.parent.span_id == hop.context.span_id
    assert (hop.attributes or {})["leveret.received_from"]


def event(key: str, time_us: int, **fields: Any) -> FirehoseEvent:
    headers = fields.pop("headers", SENT)
    given = {"properties": {"headers": headers, "message_id": "m"}, "timestamp_in_us": time_us, "node": "hq",
             "vhost": "/", "connection": "c", "channel": 1, "routing_keys": ["k"]}  # fmt: skip
    return FirehoseEvent(key, given | fields, 3, 0)


class TestFirehose:
    def test_a_hop_says_where_it_comes_from(self) -> None:
        found = Recorded()
        firehose = Firehose(found.provider.get_tracer("broker"))
        headers = SENT | {"x-received-from": [{"cluster-name": "ewr", "uri": "amqp://ewr"}]}
        firehose.take(event("publish.flights", 5, headers=headers, routed_queues=["q"]))
        (hop,) = found.spans
        assert (hop.name, (hop.attributes or {})["leveret.received_from"]) == ("hop flights", "ewr")

    def test_confirms_end_the_spans_of_their_numbers_and_refusals_are_errors(self) -> None:
        found = Recorded()
        firehose = Firehose(found.provider.get_tracer("broker"))
        for number in range(1, 5):
            firehose.take(event("publish.x", 10 * number, publish_seq_no=number))
        firehose.take(event("confirm.ack", 100, first_seq_no=1, last_seq_no=2))
        firehose.take(event("confirm.nack", 200, first_seq_no=3, last_seq_no=3))
        firehose.take(event("confirm.ack", 300, first_seq_no=4, last_seq_no=4, channel=2))
        ends = [(span.start_time, span.end_time, span.status.status_code) for span in found.spans]
        assert ends == [
            (10_000, 100_000, StatusCode.UNSET), (20_000, 100_000, StatusCode.UNSET),
            (30_000, 200_000, StatusCode.ERROR),
        ]  # fmt: skip
        firehose.close()
        assert [(span.start_time, span.end_time) for span in found.spans[3:]] == [(40_000, 40_000)]

    def test_it_remembers_no_more_than_it_may(self) -> None:
        found = Recorded()
        firehose = Firehose(found.provider.get_tracer("broker"), remembered_max=2)
        for number in range(1, 6):
            headers = SENT | {"traceparent": f"00-{number:032x}-{number:016x}-01"}
            firehose.take(event("publish.x", number, headers=headers, publish_seq_no=number))
        assert len(found.spans) == 3
        firehose.take(event("deliver.q", 50, headers=SENT | {"traceparent": f"00-{1:032x}-{1:016x}-01"}))
        delivered = found.spans[-1]
        assert (delivered.start_time, delivered.parent and delivered.parent.span_id) == (50_000, 1)

    def test_deaths_and_redeliveries_are_told(self) -> None:
        found = Recorded()
        deaths = [{"reason": "expired", "queue": "a"}, {"reason": b"rejected", "queue": "b"}]
        firehose = Firehose(found.provider.get_tracer("x"))
        firehose.take(event("deliver.q", 1, headers=SENT | {"x-death": deaths}, redelivered=1))
        known = found.spans[0].attributes or {}
        assert (known["leveret.deaths"], known["leveret.redelivered"]) == (("expired in a", "rejected in b"), True)

    @pytest.mark.parametrize("headers", [{}, {"traceparent": "nonsense"}, {"traceparent": 7}, None])
    def test_without_a_context_there_is_nothing_to_tell(self, headers: Any) -> None:
        found = Recorded()
        Firehose(found.provider.get_tracer("x")).take(event("publish.x", 1, headers=headers))
        assert found.spans == []


def test_the_command_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otel_command, "NEEDED", ("no_such_module.sdk",))
    result = CliRunner().invoke(main, ["otel"])
    assert (result.exit_code, "pip install 'leveret[otel]'" in result.output) == (2, True)
    monkeypatch.undo()
    assert "ValueError" not in CliRunner().invoke(main, ["otel", "http://nowhere"]).output


def test_a_span_is_not_made_for_who_does_not_ask() -> None:
    """The client's own modules do not import OpenTelemetry, so tracing costs nothing unless it is used."""
    code = "import sys, leveret.client; assert not any(name.startswith('opentelemetry') for name in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert trace.get_current_span().get_span_context().is_valid is False
