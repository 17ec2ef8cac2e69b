"""Legacy timeouts: their messages, clock, and queue names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from leveret.client import ChannelClosed, Delivery, Properties
from leveret.delay import MILLISECONDS, NSERVICEBUS
from leveret.endpoint.timeouts import NotATimeout, TimeoutQueues
from leveret.endpoint.timeouts.batches import batches
from leveret.endpoint.timeouts.clock import Clock
from leveret.endpoint.timeouts.drain import native
from leveret.endpoint.timeouts.order import order, order_of
from leveret.endpoint.timeouts.outbox import Outbox, Outgoing
from leveret.endpoint.timeouts.timeout import Clearing, Timeout, microseconds, read, sorted_out
from leveret.wire.properties import decode_header, encode_header
from leveret.wire.table import Value

EXPIRE = "NServiceBus.Timeout.Expire"
ROUTE_TO = "NServiceBus.Timeout.RouteExpiredTimeoutTo"
REPLY_TO = "NServiceBus.ReplyToAddress"
DUE = "2030-01-31 13:59:26:479745 Z"
DUE_US = microseconds(datetime(2030, 1, 31, 13, 59, 26, 479745, UTC))


def delivery(
    headers: dict[str, Value] | None = None, body: bytes = b"body", message_id: str | None = "m1", tag: int = 1
) -> Delivery:
    properties = Properties(headers=headers, message_id=message_id, content_type="text/xml")
    return Delivery(body, encode_header(properties, len(body)), "x", "", tag, False, "c")


def stored(headers: dict[str, Value], body: bytes = b"body", message_id: str | None = "m1") -> Timeout:
    request = read(delivery(headers, body, message_id))
    assert isinstance(request, Timeout)
    return request


def test_a_timeout_says_when_and_where() -> None:
    headers: dict[str, Value] = {EXPIRE: DUE, ROUTE_TO: "sales", REPLY_TO: "other", "NServiceBus.SagaId": "A-1"}
    timeout = stored(headers)
    assert (timeout.destination, timeout.due_us, timeout.saga_id) == ("sales", DUE_US, "a-1")
    assert timeout.due == datetime(2030, 1, 31, 13, 59, 26, 479745, UTC)
    assert decode_header(timeout.header)[0] == Properties(headers=headers, message_id="m1", content_type="text/xml")


def test_a_timeout_without_a_route_goes_to_who_asked_for_it() -> None:
    assert stored({EXPIRE: DUE, REPLY_TO: "sales"}).destination == "sales"


def test_what_is_sent_is_what_came_and_which_timeout_it_was() -> None:
    timeout = stored({EXPIRE: DUE, ROUTE_TO: "sales", "mine": "yes", "x-death": [], "NServiceBus.TimeSent": "old"})
    outgoing = timeout.outgoing()
    headers = dict(outgoing.headers or {})
    assert headers.pop("NServiceBus.TimeSent") != "old"
    assert headers == {EXPIRE: DUE, ROUTE_TO: "sales", "mine": "yes", "NServiceBus.RelatedToTimeoutId": timeout.id}
    assert (outgoing.message_id, outgoing.content_type, outgoing.delivery_mode) == ("m1", "text/xml", 2)


def test_only_the_same_message_has_the_same_id() -> None:
    headers: dict[str, Value] = {EXPIRE: DUE, ROUTE_TO: "sales"}
    different = [
        stored(headers),
        stored(headers, body=b"other"),
        stored(headers, message_id="m2"),
        stored(headers | {ROUTE_TO: "shipping"}),
        stored(headers | {EXPIRE: DUE.replace("479745", "479746")}),
        stored(headers, message_id=None),
        stored(headers, message_id=None),
    ]
    assert len({one.id for one in different}) == len(different)
    assert stored(headers | {"redelivered": True}).id == different[0].id


def test_a_saga_s_timeouts_can_be_cleared() -> None:
    assert read(delivery({"NServiceBus.ClearTimeouts": "True", "NServiceBus.SagaId": "A-1"})) == Clearing("a-1")


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        (None, "has no header NServiceBus.Timeout.Expire"),
        ({ROUTE_TO: "sales"}, "has no header NServiceBus.Timeout.Expire"),
        ({EXPIRE: "tomorrow", ROUTE_TO: "sales"}, "not a time like 2030-01-31 13:59:26:479745 Z: 'tomorrow'"),
        ({EXPIRE: 17, ROUTE_TO: "sales"}, "must be text, not int"),
        ({EXPIRE: DUE}, "has no destination"),
        ({EXPIRE: DUE, ROUTE_TO: "s" * 256}, "256 bytes, at most 255"),
        ({"NServiceBus.ClearTimeouts": "True"}, "needs NServiceBus.SagaId"),
    ],
)
def test_what_is_no_timeout_is_told_apart(headers: dict[str, Value] | None, text: str) -> None:
    good = delivery({EXPIRE: DUE, ROUTE_TO: "sales"})
    requests, poison = sorted_out([good, delivery(headers), good])
    assert len(requests) == 2
    assert text in str(poison[0][1])


def test_malformed_properties_are_no_timeout() -> None:
    with pytest.raises(NotATimeout, match="malformed properties"):
        read(Delivery(b"", b"\x00<\x00\x00", "x", "", 1, False, "c"))


def test_an_order_carries_its_claim() -> None:
    ordered = order("t1", "me", "here")
    assert (ordered.headers or {})["Timeout.Id"] == "t1"
    header = encode_header(ordered, 0)
    assert order_of(Delivery(b"", header, "", "q", 1, False, "c")) == ("t1", "me", "here")


def test_an_order_of_another_timeout_manager_is_none() -> None:
    assert order_of(delivery({"Timeout.Id": "42"})) is None
    assert order_of(delivery()) is None


class Sources:
    """A wall clock that can be set, and a monotonic one."""

    def __init__(self) -> None:
        self.wall, self.elapsed = 1_000_000_000, 5_000

    def clock(self) -> Clock:
        return Clock(lambda: self.wall, lambda: self.elapsed)

    def pass_by(self, us: int) -> None:
        self.wall += us
        self.elapsed += us


def test_time_passes() -> None:
    sources = Sources()
    clock = sources.clock()
    sources.pass_by(7)
    assert clock.now_us() == 1_000_000_007


def test_a_step_forward_makes_nothing_early() -> None:
    sources = Sources()
    clock = sources.clock()
    sources.wall += 3_600_000_000
    sources.pass_by(7)
    assert clock.now_us() == 1_000_000_007
    assert sources.clock().now_us() == sources.wall, "who starts later believes the clock"


def test_a_step_back_makes_nothing_early_and_is_made_good() -> None:
    sources = Sources()
    clock = sources.clock()
    sources.wall -= 600
    assert clock.now_us() == 1_000_000_000 - 600
    sources.wall += 600
    sources.pass_by(7)
    assert clock.now_us() == 1_000_000_007


def test_a_step_forward_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    sources = Sources()
    clock = sources.clock()
    sources.wall += 3_600_000_000
    clock.now_us()
    clock.now_us()
    assert [record.getMessage() for record in caplog.records] == [
        "the clock jumped 3600 s ahead; timeouts keep using the old time: restart to accept the new one"
    ]


def test_the_queues_have_the_older_transport_s_names() -> None:
    queues = TimeoutQueues("Sales")
    assert (queues.timeouts, queues.dispatcher) == ("Sales.Timeouts", "Sales.TimeoutsDispatcher")


class Consumed:
    """A consumer whose deliveries are put into a queue."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Delivery] = asyncio.Queue()

    def __aiter__(self) -> AsyncIterator[Delivery]:
        return self

    async def __anext__(self) -> Delivery:
        return await self.queue.get()


async def test_what_has_come_is_one_batch_and_no_more_than_the_limit() -> None:
    consumer, stopping = Consumed(), asyncio.Event()
    for tag in range(5):
        consumer.queue.put_nowait(delivery(tag=tag))
    tags: list[list[int]] = []
    async for batch in batches(consumer, 3, stopping):  # type: ignore[arg-type]
        tags.append([one.delivery_tag for one in batch])
        if len(tags) == 2:
            consumer.queue.put_nowait(delivery(tag=9))
        if len(tags) == 3:
            stopping.set()
    assert tags == [[0, 1, 2], [3, 4], [9]]


def test_a_drained_message_leaves_the_time_of_sending_to_the_layout() -> None:
    """TimeSent and the delay together tell tools that move delayed messages when the message is due."""
    timeout = stored({EXPIRE: DUE, ROUTE_TO: "sales", "NServiceBus.TimeSent": "old"})
    assert "NServiceBus.TimeSent" not in (native(timeout, NSERVICEBUS).headers or {})
    assert "NServiceBus.TimeSent" in (native(timeout, MILLISECONDS).headers or {})


class Exchanges:
    """A connection, and its channels, to a broker with these exchanges; it records what is published."""

    def __init__(self, names: tuple[str, ...], published: list[str]) -> None:
        self.names, self.published, self.is_closed = names, published, False

    @property
    def core(self) -> SimpleNamespace:
        return SimpleNamespace(frame_max=0)

    async def channel(self) -> Exchanges:
        return Exchanges(self.names, self.published)

    async def confirm_select(self) -> None:
        pass

    async def declare_exchange(self, name: str, kind: str, passive: bool) -> None:
        assert passive
        if name not in self.names:
            self.is_closed = True
            raise ChannelClosed(404, f"NOT_FOUND - no exchange '{name}' in vhost '/'")

    def publish(
        self, body: bytes, exchange: str, key: str, properties: Properties, mandatory: bool
    ) -> asyncio.Future[None]:
        assert mandatory
        self.published.append(exchange)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


async def test_a_missing_exchange_is_asked_for_before_anything_is_published() -> None:
    broker = Exchanges(("a", "b"), [])
    outbox = Outbox(broker, TimeoutQueues("Sales"))  # type: ignore[arg-type]
    outcomes = await outbox.send([Outgoing(name, Properties(), b"") for name in ("a", "missing", "b")])
    assert broker.published == ["a", "b"]
    assert outcomes[0] is outcomes[2] is None
    assert "the destination 'missing' does not exist (NOT_FOUND" in str(outcomes[1])
