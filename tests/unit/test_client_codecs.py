"""Codecs, and what a delivery makes of its body and its properties."""

from __future__ import annotations

import dataclasses
import math
import sys
from typing import Any

import msgpack
import msgspec
import pydantic
import pytest

from leveret.client import JSON, MSGPACK, Codec, Delivery, Properties, UndecodableBody, msgspec_struct, pydantic_model
from leveret.wire.properties import encode_header

from .client_in_memory import AsyncLine, BlockingLine, Line


class Order(pydantic.BaseModel):
    number: int
    placed_by: str = pydantic.Field(alias="from")


class Ship(msgspec.Struct):
    order: int
    to: str = "here"


@dataclasses.dataclass
class Bill:
    order: int


ORDER = Order.model_validate({"number": 1, "from": "me"})
CASES: list[tuple[Codec[Any], Any, bytes]] = [
    (JSON, {"grün": [1, None, True]}, '{"grün":[1,null,true]}'.encode()),
    (MSGPACK, {"a": [1, None, b"\0"]}, msgpack.packb({"a": [1, None, b"\0"]})),
    (pydantic_model(Order), ORDER, b'{"number":1,"from":"me"}'),
    (msgspec_struct(Ship), Ship(2), b'{"order":2,"to":"here"}'),
    (msgspec_struct(Bill), Bill(3), b'{"order":3}'),
]
TYPES = {"MSGPACK": "application/msgpack"}


def received(body: bytes, properties: Properties | None = None) -> Delivery:
    return Delivery(body, encode_header(properties or Properties(), len(body)), "x", "k", 7, False, "t")


@pytest.fixture(params=[AsyncLine, BlockingLine])
async def line(request: pytest.FixtureRequest) -> Line:
    found: Line = request.param()
    return found


@pytest.mark.parametrize(("codec", "value", "body"), CASES, ids=lambda it: it.name if isinstance(it, Codec) else "")
async def test_an_object_is_published_and_read(line: Line, codec: Codec[Any], value: Any, body: bytes) -> None:
    channel = await line.do(line.channel)
    await line.do(lambda: channel.declare_queue("q"))
    channel.publish(codec.encode(value), "", "q")
    delivery = await line.do(lambda: channel.get("q"))
    assert delivery.body == body
    assert delivery.content_type == delivery.properties.content_type == TYPES.get(codec.name, "application/json")
    assert delivery.decode(codec) == value
    assert delivery.ack()
    assert await line.do(lambda: channel.get("q")) is None


async def test_the_publishers_content_type_and_properties_stay_as_they_are(line: Line) -> None:
    channel = await line.do(line.channel)
    await line.do(lambda: channel.declare_queue("q"))
    given, other = Properties(message_id="m"), Properties(content_type="application/vnd.order+json")
    for properties in (given, other):
        channel.publish(JSON.encode({}), "", "q", properties)
    assert given == Properties(message_id="m")
    found = [(await line.do(lambda: channel.get("q"))).properties for _ in range(2)]
    assert found == [Properties("application/json", message_id="m"), other]


@pytest.mark.parametrize(
    ("codec", "body", "reason"),
    [
        (JSON, b"{", "Expecting property name"),
        (JSON, b"\xff", "can't decode byte 0xff"),
        (MSGPACK, b"\xc1", "MessagePack data is malformed"),
        (pydantic_model(Order), b'{"number":"x","from":"me"}', "valid integer"),
        (msgspec_struct(Ship), b'{"order":"2"}', "Expected `int`, got `str`"),
    ],
)
def test_a_body_that_cannot_be_decoded(codec: Codec[Any], body: bytes, reason: str) -> None:
    delivery = received(body, Properties("text/plain", message_id="m1"))
    with pytest.raises(UndecodableBody) as caught:
        delivery.decode(codec)
    text = str(caught.value)
    assert text.startswith(f"{codec.name} cannot decode the body of <Delivery 7 exchange='x' routing_key='k'")
    assert "(message_id 'm1', content_type 'text/plain')" in text
    assert reason in text
    assert text.endswith("reject it without requeue: delivery.reject(requeue=False)")
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("codec", "value", "reason"),
    [
        (JSON, object(), "JSON cannot encode an object of type object: .* not JSON serializable"),
        (JSON, math.nan, "JSON cannot encode an object of type float: Out of range float values"),
        (MSGPACK, object(), "MSGPACK cannot encode an object of type object"),
        (pydantic_model(Order), {"number": 1}, "pydantic model Order cannot .* type dict: it must be of type Order"),
        (msgspec_struct(Ship), Bill(1), "msgspec struct Ship cannot .* type Bill: it must be of type Ship"),
    ],
)
def test_an_object_that_cannot_be_encoded(codec: Codec[Any], value: object, reason: str) -> None:
    with pytest.raises(TypeError, match=reason):
        codec.encode(value)


def test_a_model_of_another_library_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Bill'> is no pydantic model: it must be a subclass of BaseModel"):
        pydantic_model(Bill)  # type: ignore[type-var]


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msgspec", None)
    with pytest.raises(ImportError, match="msgspec_struct needs the package msgspec: pip install msgspec"):
        msgspec_struct(Ship)
    with pytest.raises(ImportError, match="MSGPACK needs the package msgspec"):
        MSGPACK.encode(1)
    with pytest.raises(ImportError, match="MSGPACK needs the package msgspec"):
        received(b"\1").decode(MSGPACK)


def test_a_codec_of_ones_own() -> None:
    text = Codec[str]("text", "text/plain; charset=utf-8", str.encode, bytes.decode)
    assert received(text.encode("grün")).decode(text) == "grün"
    assert text.encode("x").content_type == "text/plain; charset=utf-8"


def test_a_delivery_has_the_properties_of_its_message() -> None:
    given = Properties("a/b", "gzip", {"n": 1}, 2, 3, "c", "r", "60", "m", 1_700_000_000, "t", "u", "app")
    delivery = received(b"[1]", given)
    names = [field.name for field in dataclasses.fields(Properties) if field.name != "cluster_id"]
    assert {name: getattr(delivery, name) for name in names} == {name: getattr(given, name) for name in names}
    assert received(b"").headers == {}
    assert received(b"").message_id is None
    assert delivery.json() == [1]


@pytest.mark.parametrize("fetch", ["get", "consume"])
async def test_a_delivery_is_settled_by_itself(line: Line, fetch: str) -> None:
    channel = await line.do(line.channel)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    await line.do(lambda: channel.declare_queue("q", arguments=arguments))
    await line.do(lambda: channel.declare_queue("dead"))
    sizes = (3, 300_000)  # the second one does not fit into one frame
    for size in sizes:
        channel.publish(b"x" * size, "", "q")
    if fetch == "consume":
        consumer = await line.do(lambda: channel.consume("q"))

    async def following() -> Delivery:
        if fetch == "get":
            found: Delivery = await line.do(lambda: channel.get("q"))
        else:
            found = await line.do(lambda: anext(consumer) if isinstance(line, AsyncLine) else channel.next_delivery())
        return found

    first, second = await following(), await following()
    assert (len(first.body), len(second.body)) == sizes
    assert first.nack()
    assert second.reject(requeue=False)
    again = await following()
    assert again.redelivered
    assert again.ack()
    line.settle()
    dead = await line.do(lambda: channel.get("dead", no_ack=True))
    assert len(dead.body) == sizes[1]
    assert (await line.do(lambda: channel.declare_queue("q", passive=True))).message_count == 0
    with pytest.raises(Exception, match="needs no acknowledgement: it was sent with no_ack"):
        dead.ack()
    assert not channel.is_closed
    await line.do(channel.close)
    with pytest.raises(Exception, match="closed"):
        again.ack()
