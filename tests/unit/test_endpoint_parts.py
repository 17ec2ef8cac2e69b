"""The parts of an endpoint that need no broker: names, bodies, headers, failures, handlers."""

from __future__ import annotations

import asyncio
import struct
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import leveret
import leveret.client
from leveret.client import Delivery, Properties
from leveret.client.protocol.reconnect import Backoff
from leveret.delay import NSERVICEBUS, Layout
from leveret.endpoint import (
    Context,
    Endpoint,
    Failure,
    MoveToError,
    Recoverability,
    RetryLater,
    RetryNow,
    UnknownMessage,
    body,
)
from leveret.endpoint import message_type as named
from leveret.endpoint.failure_headers import ROOM_MIN, STACK_MAX, TEXT_MAX, failure_headers
from leveret.endpoint.handlers import Handlers, type_of
from leveret.endpoint.message import Incoming, PoisonMessage, transferable, with_headers, without_failure
from leveret.endpoint.origin import Origin
from leveret.endpoint.topology import Topology
from leveret.endpoint.types import enclosed, exchange_name, name_of, names_of, routing_key
from leveret.wire.properties import encode_header
from leveret.wire.table import Value


@named("Base.Event")
@dataclass
class Event:
    n: int


@dataclass
class Middle(Event):
    """An event without a wire name of its own."""


@named("Top.Event")
@dataclass
class Special(Middle):
    x: str = ""


class Packed(msgspec.Struct, rename="pascal"):
    order_id: int


def delivery(properties: Properties, content: bytes = b"{}") -> Delivery:
    return Delivery(content, encode_header(properties, len(content)), "", "q", 1, False, "")


def incoming(headers: dict[str, Value] | None = None, **properties: Any) -> Incoming:
    properties.setdefault("message_id", "m1")
    return Incoming.of(delivery(Properties(headers=headers, **properties)), NSERVICEBUS.delay_header)


# names


def test_a_type_is_called_as_it_was_named_or_by_its_module_and_class() -> None:
    middle = f"{__name__}.Middle"
    assert names_of(Special) == ("Top.Event", middle, "Base.Event")
    assert names_of(Middle) == (middle, "Base.Event")
    assert name_of(Packed) == f"{__name__}.Packed"
    assert names_of(Packed) == (f"{__name__}.Packed",)


@pytest.mark.parametrize("kind", [int, dict, msgspec.Struct, str])
def test_what_is_no_message_type(kind: type) -> None:
    with pytest.raises(TypeError, match=f"{kind.__name__} is not a message type"):
        name_of(kind)


@pytest.mark.parametrize("name", ["", "A,B", "A;B"])
def test_names_that_the_header_can_not_hold(name: str) -> None:
    with pytest.raises(ValueError, match="not the name of a message type"):
        named(name)


def test_what_the_topologies_make_of_names() -> None:
    assert exchange_name("Sales.Messages.OrderPlaced") == "Sales.Messages:OrderPlaced"
    assert exchange_name("OrderPlaced") == ":OrderPlaced"
    assert routing_key(("Sales.Special", "Sales.Base")) == "Sales-Base.Sales-Special"
    assert enclosed("A.B, Asm, Version=1.0;C.D;; ;E") == ["A.B", "C.D", "E"]


def test_an_address_of_direct_reply_to_has_no_exchange() -> None:
    topology = Topology()
    assert topology.address("sales") == ("sales", "")
    assert topology.address("amq.rabbitmq.reply-to.abc") == ("", "amq.rabbitmq.reply-to.abc")


# bodies


def test_bodies_are_json_of_dataclasses_structs_and_dicts() -> None:
    assert body.encode(Special(1, "é")) == '{"n":1,"x":"é"}'.encode()
    assert body.encode(Packed(1)) == b'{"OrderId":1}'
    assert body.decode(
        b'\xef\xbb\xbf{"OrderId":5,"$type":"A.B, C"}', "application/json; charset=utf-8", Packed
    ) == Packed(5)
    assert body.decode(b'{"a":[1]}', "", None) == {"a": [1]}
    assert body.decode(b"{}", "application/vnd.api+json", None) == {}


@pytest.mark.parametrize(
    ("content", "content_type", "told"),
    [
        (b"<a/>", "text/xml", "the content type is text/xml"),
        (b"{", "", "can't be read as Special"),
        (b"\xff\xff", "", "can't be read as Special"),
        (b'{"x":"y"}', "", "missing required field `n`"),
    ],
)
def test_bodies_that_can_not_be_read_say_why(content: bytes, content_type: str, told: str) -> None:
    with pytest.raises(body.UndecodableMessage, match=told):
        body.decode(content, content_type, Special)


# headers


def test_headers_are_text_and_without_the_traces_of_the_levels() -> None:
    message = incoming(
        {
            "NServiceBus.Transport.RabbitMQ.DelayInSeconds": 5,
            "x-death": [{"count": 1}],
            "x-first-death-queue": "q",
            "x-last-death-queue": "q",
            "x-delivery-count": 3,
            "CC": ["other"],
            "number": 5,
            "bytes": b"\xffa",
            "yes": True,
            "none": None,
            "list": [1, "b"],
            "table": {"a": 1, "b": "c"},
            "time": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
            "NServiceBus.Retries": 2,
        },
        reply_to="back",
        correlation_id="c1",
        type="Sales.PlaceOrder",
        expiration="5000",
        user_id="guest",
    )
    assert message.headers == {
        "number": "5",
        "bytes": "�a",
        "yes": "True",
        "none": "",
        "list": "1;b",
        "table": "a=1,b=c",
        "time": "2026-01-02 03:04:05:000000 Z",
        "NServiceBus.Retries": "2",
        "NServiceBus.MessageId": "m1",
        "NServiceBus.ReplyToAddress": "back",
        "NServiceBus.CorrelationId": "c1",
        "NServiceBus.EnclosedMessageTypes": "Sales.PlaceOrder",
    }
    assert message.delayed_retries == 2
    assert message.types == ("Sales.PlaceOrder",)
    sent_on = message.properties
    assert (sent_on.expiration, sent_on.user_id) == (None, None)
    assert "CC" not in (sent_on.headers or {})
    assert sent_on.reply_to == "back"


def test_a_message_id_may_be_in_the_header_only_but_must_be_somewhere() -> None:
    assert incoming({"NServiceBus.MessageId": "h1"}, message_id=None).message_id == "h1"
    for nothing in (None, "", "  "):
        with pytest.raises(PoisonMessage, match="needs an id"):
            incoming({}, message_id=nothing)


@pytest.mark.parametrize("count", ["-1", "x", "", "１", "1.5"])
def test_a_count_that_is_none_is_poison(count: str) -> None:
    with pytest.raises(PoisonMessage, match="is not a number"):
        incoming({"NServiceBus.Retries": count})


def test_malformed_properties_are_poison() -> None:
    broken = encode_header(Properties(message_id="m", headers={"a": 1}), 2)[:-3] + b"\xff\xff\xff"
    with pytest.raises(PoisonMessage, match="malformed"):
        Incoming.of(Delivery(b"{}", broken, "", "", 1, False, ""), "")


def test_a_message_that_starts_anew_tells_of_no_failure() -> None:
    told = failure_headers(ValueError("no"), "sales", 5, 3)
    assert without_failure(Properties(headers={**told, "mine": 1, "NServiceBus.Retries": "3"})).headers == {"mine": 1}


def test_what_is_sent_from_a_handler_belongs_to_the_conversation() -> None:
    origin = Origin("sales", NSERVICEBUS)
    first = origin.send("billing", Event(1))
    headers = first.properties.headers or {}
    assert headers["NServiceBus.CorrelationId"] == headers["NServiceBus.MessageId"] == first.properties.message_id
    assert "NServiceBus.RelatedTo" not in headers
    handled = Incoming.of(delivery(first.properties), "")
    context = Context(Origin("billing", NSERVICEBUS), handled, 0)
    context.send("shipping", Event(2))
    context.reply(Event(3))
    for message in context.outgoing:
        told = message.properties.headers or {}
        assert told["NServiceBus.ConversationId"] == headers["NServiceBus.ConversationId"]
        assert told["NServiceBus.RelatedTo"] == first.properties.message_id
        assert told["NServiceBus.CorrelationId"] == first.properties.message_id
        assert told["NServiceBus.ReplyToAddress"] == message.properties.reply_to == "billing"


def test_a_reply_needs_an_address() -> None:
    with pytest.raises(ValueError, match="no reply address"):
        Context(Origin("sales", NSERVICEBUS), incoming(), 0).reply(Event(1))


def test_a_context_refuses_at_once_what_can_not_be_sent() -> None:
    context = Context(Origin("sales", Layout(levels=2)), incoming(), 0)
    for delay in (-1, 4, float("nan")):
        with pytest.raises(ValueError):
            context.send("billing", Event(1), delay=delay)
        with pytest.raises(ValueError):
            context.defer(delay)
    with pytest.raises(ValueError, match="either"):
        context.defer()
    assert context.outgoing == []


def test_a_deferred_message_counts_no_retries() -> None:
    context = Context(Origin("sales", NSERVICEBUS), incoming({"NServiceBus.Retries": "2", "mine": "x"}), 1)
    context.defer(1)
    assert context.delayed_retries == 2
    assert context.outgoing[0].properties.headers == {"mine": "x", "NServiceBus.IsDeferredMessage": "True"}


def test_what_is_sent_on_is_persistent_where_it_was() -> None:
    assert transferable(Properties(delivery_mode=1)).delivery_mode == 1


# failures


def chained() -> Exception:
    try:
        try:
            raise KeyError("inner")
        except KeyError as inner:
            raise RuntimeError("outer") from inner
    except RuntimeError as error:
        return error


def test_an_exception_in_headers() -> None:
    told = failure_headers(chained(), "sales", 5, 3)
    assert told["NServiceBus.FailedQ"] == told["NServiceBus.ProcessingEndpoint"] == "sales"
    assert told["NServiceBus.ExceptionInfo.ExceptionType"] == "RuntimeError"
    assert told["NServiceBus.ExceptionInfo.InnerExceptionType"] == "KeyError"
    assert told["NServiceBus.ExceptionInfo.Message"] == "outer"
    assert told["NServiceBus.ExceptionInfo.Source"] == __name__
    assert "KeyError: 'inner'" in str(told["NServiceBus.ExceptionInfo.StackTrace"])
    assert (told["Leveret.ImmediateRetries"], told["Leveret.DelayedRetries"]) == ("5", "3")


@pytest.mark.parametrize("room", [-1, 0, ROOM_MIN, ROOM_MIN + 500, 10**6])
def test_a_failure_fits_into_the_room_there_is(room: int) -> None:
    told = failure_headers(RuntimeError("x" * 100_000 + "end"), "sales", 0, 0, room)
    stack = str(told["NServiceBus.ExceptionInfo.StackTrace"])
    assert len(stack) <= max(30, min(STACK_MAX, room - ROOM_MIN))
    assert len(str(told["NServiceBus.ExceptionInfo.Message"])) <= TEXT_MAX
    assert str(told["NServiceBus.ExceptionInfo.Message"]).endswith("end")


def test_nothing_but_text_can_be_sent() -> None:
    told = failure_headers(RuntimeError("half a pair: \ud800"), "sales", 0, 0)
    assert encode_header(Properties(headers=told), 0)


def failure(error: Exception, immediate: int, delayed: int) -> Failure:
    return Failure(incoming(), error, immediate, delayed)


def test_the_default_is_five_at_once_and_three_rounds_later() -> None:
    recoverability = Recoverability()
    actions = []
    immediate = delayed = 0
    while True:
        action = recoverability.decide(failure(RuntimeError(), immediate, delayed))
        actions.append(action)
        if isinstance(action, RetryNow):
            immediate += 1
        elif isinstance(action, RetryLater):
            immediate, delayed = 0, delayed + 1
        else:
            break
    rounds = [RetryNow()] * 5
    later = [RetryLater(timedelta(seconds=seconds)) for seconds in (10, 20, 30)]
    assert actions == [*rounds, later[0], *rounds, later[1], *rounds, later[2], *rounds, MoveToError()]


@pytest.mark.parametrize("error", [UnknownMessage(), PoisonMessage(), body.UndecodableMessage(), ZeroDivisionError()])
def test_what_no_retry_helps_against(error: Exception) -> None:
    recoverability = Recoverability(unrecoverable=(ArithmeticError,))
    assert recoverability.decide(failure(error, 0, 0)) == MoveToError()


@pytest.mark.parametrize(
    "options", [{"immediate_retries": -1}, {"delayed_retries": -1}, {"delay_increase": timedelta(0)}]
)
def test_numbers_of_retries_out_of_range(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must"):
        Recoverability(**options)


def test_waits_double_up_to_a_bound_and_begin_anew() -> None:
    backoff = Backoff(1.0, 8.0)
    for _ in range(2):
        for bound in (1, 2, 4, 8, 8):
            assert bound / 2 <= backoff.next_s() <= bound
        backoff.reset()


# handlers


async def test_handlers_of_all_the_types_are_called_the_most_special_first() -> None:
    handlers = Handlers()
    called: list[object] = []

    async def on_base(message: Event, context: Context) -> None:
        called.append(message)

    async def on_special(message: Special, context: Context) -> None:
        called.append(message)

    async def on_name(message: Any, context: Context) -> None:
        called.append(message)

    handlers.add(type_of(on_base), on_base)
    handlers.add(Special, on_special)
    handlers.add("Base.Event", on_name)
    message = Origin("sales", NSERVICEBUS).publish(Special(1, "x"))
    received = Incoming.of(delivery(message.properties, message.body), "")
    await handlers.handle(received, Context(Origin("billing", NSERVICEBUS), received, 0))
    assert called == [Special(1, "x"), Event(1), {"n": 1, "x": "x"}]


async def test_a_message_without_a_handler_says_what_there_is() -> None:
    handlers = Handlers()
    message = incoming(type="Other")
    context = Context(Origin("sales", NSERVICEBUS), message, 0)
    with pytest.raises(UnknownMessage, match="no handler for Other; this endpoint handles nothing"):
        await handlers.handle(message, context)
    with pytest.raises(UnknownMessage, match="does not state its type"):
        await handlers.handle(incoming(), context)


def test_what_can_be_no_handler() -> None:
    node = Endpoint("e", "amqp://localhost")

    def plain(message: Event, context: Context) -> None: ...

    async def untyped(message, context): ...  # type: ignore[no-untyped-def]

    async def number(message: int, context: Context) -> None: ...

    async def unknown(message: Nowhere, context: Context) -> None: ...  # type: ignore[name-defined] # noqa: F821

    with pytest.raises(TypeError, match="async function"):
        node.handler(plain)  # type: ignore[type-var]
    with pytest.raises(TypeError, match="does not annotate"):
        node.handler(untyped)
    with pytest.raises(TypeError, match="int is not a message type"):
        node.handler(number)
    with pytest.raises(TypeError, match="can't be read"):
        node.handler(unknown)
    with pytest.raises(TypeError, match="int is not a message type"):
        node.handler(int)(number)


def test_the_timeout_manager_is_disabled_before_the_start() -> None:
    async def late() -> None:
        node = Endpoint("e", "amqp://localhost")
        node._keeper = asyncio.create_task(asyncio.Event().wait())  # type: ignore[assignment]
        try:
            with pytest.raises(RuntimeError, match="before the endpoint starts"):
                node.disable_timeout_manager()
        finally:
            assert node._keeper is not None
            node._keeper.cancel()

    asyncio.run(late())


# the package


def test_leveret_alone_imports_neither_client_nor_endpoint() -> None:
    """Spark's executors import the package, and need neither."""
    told = "import sys, leveret; sys.exit('leveret.endpoint' in sys.modules or 'leveret.client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", told], check=False).returncode == 0
    with pytest.warns(DeprecationWarning, match=r"use leveret\.endpoint\.Endpoint"):
        assert leveret.Endpoint is Endpoint  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="has no attribute 'Endpoints'"):
        _ = leveret.Endpoints  # type: ignore[attr-defined]


def test_the_client_is_at_the_front_door() -> None:
    assert set(leveret.client.__all__) <= set(leveret.__all__) <= set(dir(leveret))
    assert all(getattr(leveret, name) is getattr(leveret.client, name) for name in leveret.client.__all__)


# arbitrary headers


@given(st.binary(max_size=80), st.integers(0, 0xFFFF), st.binary(max_size=200))
@settings(max_examples=2000)
def test_whatever_a_header_holds_it_is_read_or_poison(table: bytes, flags: int, rest: bytes) -> None:
    """A delivery with a header that no handler can take must not end the endpoint."""
    encoded = struct.pack(">HHQHI", 60, 0, 2, flags | 1 << 13, len(table)) + table + rest
    try:
        message = Incoming.of(Delivery(b"{}", encoded, "", "", 1, False, ""), NSERVICEBUS.delay_header)
    except PoisonMessage:
        return
    assert all(isinstance(value, str) for value in message.headers.values())
    assert message.message_id.strip()


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**31), 2**31 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.binary(max_size=20)
    | st.datetimes(datetime(1970, 1, 2), datetime(9999, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.text(min_size=1, max_size=20), _VALUES, max_size=5))
def test_whatever_headers_a_message_has_it_can_be_sent_on(headers: dict[str, Any]) -> None:
    message = incoming(headers)
    told = failure_headers(ValueError("no"), "sales", 1, 2)
    sent = with_headers(without_failure(message.properties), told)
    again = Incoming.of(delivery(sent), "")
    assert {name: again.headers[name] for name in message.headers} == dict(message.headers)
