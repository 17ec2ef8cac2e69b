"""CC and BCC: more routing keys in a message's headers ("Sender-selected Distribution" in RabbitMQ's documentation)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from .collect import answers, content, exclusive, fanout, take
from .raw import RawClient, Typed


@pytest.fixture
def queues(raw: RawClient) -> list[str]:
    """Three queues; the first one's name is the routing key of most tests."""
    return [exclusive(raw) for _ in range(3)]


@pytest.fixture
def direct(raw: RawClient, unique: str, queues: list[str]) -> str:
    """A direct exchange with each queue bound by its name."""
    raw.call("exchange.declare", exchange=unique, type="direct", auto_delete=True)
    for queue in queues:
        raw.call("queue.bind", queue=queue, exchange=unique, routing_key=queue)
    return unique


def send(client: RawClient, key: str, headers: dict[str, Any], exchange: str = "", **more: Any) -> None:
    """Publish and wait for the confirm, so that all copies are in their queues."""
    client.call("confirm.select")
    client.publish(b"x", exchange=exchange, routing_key=key, headers=headers, **more)
    client.read("basic.ack")


def copies(client: RawClient, queues: list[str]) -> list[list[dict[str, Any]]]:
    """Return the headers of each message in each of the queues."""
    found: list[list[dict[str, Any]]] = []
    for queue in queues:
        found.append([])
        while (got := client.call("basic.get", queue=queue, no_ack=True)).name == "basic.get-ok":
            found[-1].append(got.properties["headers"])
    return found


@pytest.mark.parametrize("through", ["default", "direct"])
def test_copies_go_to_all_keys_and_blind_ones_are_not_shown(
    raw: RawClient, queues: list[str], direct: str, through: str
) -> None:
    first, second, third = queues
    exchange = direct if through == "direct" else ""
    send(raw, first, {"CC": [second], "BCC": [third], "mine": 1}, exchange)
    assert copies(raw, queues) == [[{"CC": [second], "mine": 1}]] * 3
    send(raw, first, {"BCC": [second]}, exchange)
    assert copies(raw, queues) == [[{}], [{}], []]
    send(raw, "nowhere", {"CC": [third]}, exchange)
    assert copies(raw, queues) == [[], [], [{"CC": [third]}]]


def test_a_queue_gets_one_copy(raw: RawClient, queues: list[str], direct: str) -> None:
    first, second, _ = queues
    headers = {"CC": [second, second, first]}
    for exchange in ("", direct):
        send(raw, first, headers | {"BCC": [second]}, exchange)
        assert copies(raw, queues) == [[headers], [headers], []]


def test_copies_keep_the_routing_key(raw: RawClient, queues: list[str], direct: str) -> None:
    first, second, _ = queues
    send(raw, first, {"BCC": [second]}, direct)
    for queue in (first, second):
        got = take(raw, queue)
        assert (got["exchange"], got["routing_key"]) == (direct, first)
    raw.call("basic.consume", queue=second, no_ack=True)
    send_to = {"BCC": [second]}
    raw.publish(b"x", exchange=direct, routing_key=first, headers=send_to)
    frames = {each.name: each for each in (raw.read(), raw.read())}
    assert (frames["basic.deliver"]["exchange"], frames["basic.deliver"]["routing_key"]) == (direct, first)
    assert frames["basic.deliver"].properties["headers"] == {}


def test_copies_by_pattern(raw: RawClient, unique: str) -> None:
    queue = exclusive(raw)
    raw.call("exchange.declare", exchange=unique, type="topic", auto_delete=True)
    raw.call("queue.bind", queue=queue, exchange=unique, routing_key="a.*")
    send(raw, "b", {"CC": ["a.b", "a.c"]}, unique)
    assert copies(raw, [queue]) == [[{"CC": ["a.b", "a.c"]}]]


def test_copies_and_a_headers_exchange(raw: RawClient, unique: str) -> None:
    """A headers exchange ignores these keys, and BCC is removed before headers are matched."""
    matching, missing = exclusive(raw), exclusive(raw)
    raw.call("exchange.declare", exchange=unique, type="headers", auto_delete=True)
    raw.call("queue.bind", queue=matching, exchange=unique, arguments={"mine": 1})
    raw.call("queue.bind", queue=missing, exchange=unique, arguments={"BCC": None})
    send(raw, "", {"CC": [missing], "BCC": [missing], "mine": 1}, unique)
    assert copies(raw, [matching, missing]) == [[{"CC": [missing], "mine": 1}], []]


@pytest.fixture
def with_alternate(raw: RawClient, other: RawClient, unique: str) -> Iterator[list[str]]:
    """Yield the queue of a direct exchange, and the queue that gets everything from its alternate exchange."""
    main, alternate = exclusive(raw), exclusive(raw)
    fanout(raw, f"{unique}-rest", alternate)
    raw.call("exchange.declare", exchange=unique, type="direct", arguments={"alternate-exchange": f"{unique}-rest"})
    raw.call("queue.bind", queue=main, exchange=unique, routing_key="key")
    yield [main, alternate]
    other.call("exchange.delete", exchange=unique)


def test_the_alternate_exchange_asks_for_all_keys(raw: RawClient, unique: str, with_alternate: list[str]) -> None:
    send(raw, "none", {"CC": ["key"]}, unique)
    assert copies(raw, with_alternate) == [[{"CC": ["key"]}], []]
    send(raw, "none", {"CC": ["nor this"]}, unique)
    assert copies(raw, with_alternate) == [[], [{"CC": ["nor this"]}]]


def test_the_return_shows_no_blind_copies(raw: RawClient, unique: str) -> None:
    raw.call("confirm.select")
    raw.publish(b"x", routing_key=unique, mandatory=True, headers={"CC": [f"{unique}-2"], "BCC": [f"{unique}-3"]})
    got = raw.read("basic.return")
    assert (got["routing_key"], got.properties["headers"]) == (unique, {"CC": [f"{unique}-2"]})
    assert answers(raw, 1) == "a"


def test_a_copy_that_arrives_is_enough(raw: RawClient, queues: list[str], unique: str) -> None:
    raw.call("confirm.select")
    raw.publish(b"x", routing_key=unique, mandatory=True, headers={"BCC": [queues[0]]})
    assert answers(raw, 1) == "a"
    assert content(raw, queues[0]) == [b"x"]


def test_copies_do_not_stay_with_the_route(raw: RawClient, queues: list[str]) -> None:
    """Messages with and without CC in one write, all with the same exchange and routing key."""
    first, second, _ = queues
    for number in range(30):
        raw.publish(b"%02d" % number, routing_key=first, headers={"CC": [second]} if number % 3 == 0 else {"CD": ["x"]})
    raw.call("confirm.select")
    raw.publish(b"last", routing_key=first)
    raw.read("basic.ack")
    assert content(raw, first) == [*[b"%02d" % number for number in range(30)], b"last"]
    assert content(raw, second) == [b"%02d" % number for number in range(0, 30, 3)]


@pytest.mark.parametrize("headers", [
    {"cc": ["{}"]}, {"inner": {"CC": ["{}"], "BCC": ["{}"]}}, {"CC": []}, {"CC": [1, None]}, {"text": "\x02CC\x03BCC"},
    {"CC": ["x" * 300]},
])
def test_headers_that_are_no_copies(raw: RawClient, queues: list[str], headers: dict[str, Any]) -> None:
    send(raw, queues[0], headers)
    assert copies(raw, queues) == [[headers], [], []]


@pytest.mark.parametrize("name", ["CC", "BCC"])
@pytest.mark.parametrize(("given", "kind"), [
    ("key", "longstr"), (1, "signedint"), (1 << 40, "long"), (None, "void"), (True, "bool"), (1.5, "double"),
    ({"a": 1}, "table"), (Typed("T", 5), "timestamp"), (Typed("x", b"key"), "binary"), (Typed("b", 5), "byte"),
    (Typed("f", 1.5), "float"), (Typed("s", 1), "short"), (Typed("i", 1), "unsignedint"),
])
def test_no_array(raw: RawClient, queues: list[str], name: str, given: object, kind: str) -> None:
    raw.publish(b"x", routing_key=queues[0], headers={name: given})
    text = f'PRECONDITION_FAILED - invalid message: {{unacceptable_type_in_header,"{name}",{kind}}}'
    assert raw.closed() == (406, text, 60, 40)
    assert content(raw, queues[0]) == []


def test_no_array_beside_an_array(raw: RawClient, queues: list[str]) -> None:
    for headers, name in (({"CC": [queues[1]], "BCC": "x"}, "BCC"), ({"BCC": "x", "CC": "y"}, "CC")):
        raw.publish(b"x", routing_key=queues[0], headers=headers)
        text = f'PRECONDITION_FAILED - invalid message: {{unacceptable_type_in_header,"{name}",longstr}}'
        assert raw.closed()[1] == text
    assert content(raw, queues[1]) == []


# -- dead letters ------------------------------------------------------------------------------------------------------


def test_dead_letters_without_a_key_go_to_all_keys_again(raw: RawClient, unique: str, queues: list[str]) -> None:
    """BCC keys included, although x-death lists only the others."""
    first, second, third = queues
    source = exclusive(raw, x_dead_letter_exchange="", x_message_ttl=0)
    exchange = fanout(raw, unique, source)
    raw.publish(b"x", exchange=exchange, routing_key=first, headers={"CC": [second], "BCC": [third]}, delivery_mode=2)
    for queue in queues:
        got = take(raw, queue)
        assert (got["exchange"], got["routing_key"]) == ("", first)
        headers = got.properties["headers"]
        assert headers["CC"] == [second]
        assert "BCC" not in headers
        assert headers["x-death"][0]["routing-keys"] == [first, second]


@pytest.mark.parametrize("cc", [True, False])
def test_dead_letters_with_a_key_go_there_only(raw: RawClient, queues: list[str], cc: bool) -> None:
    grave, second, third = queues
    source = exclusive(raw, x_dead_letter_exchange="", x_dead_letter_routing_key=grave, x_message_ttl=0)
    headers = {"CC": [second] if cc else [], "BCC": [third], "mine": 1}
    raw.publish(b"x", routing_key=source, headers=headers)
    got = take(raw, grave).properties["headers"]
    assert "CC" not in got
    assert got["mine"] == 1
    assert got["x-death"][0]["routing-keys"] == ([source, second] if cc else [source])
    for queue, expected in ((second, cc), (third, True)):
        if expected:
            assert "x-death" not in take(raw, queue).properties["headers"]
        assert content(raw, queue) == []


def test_copies_of_copies(raw: RawClient, unique: str, queues: list[str]) -> None:
    """Two hops: the first keeps the keys, the second has its own routing key."""
    grave, second, _ = queues
    middle = exclusive(raw, x_dead_letter_exchange="", x_dead_letter_routing_key=grave, x_message_ttl=0)
    source = exclusive(raw, x_dead_letter_exchange="", x_message_ttl=0)
    exchange = fanout(raw, unique, source)
    raw.publish(b"x", exchange=exchange, routing_key=middle, headers={"CC": [second]})
    headers = take(raw, grave).properties["headers"]
    assert "CC" not in headers
    assert [death["routing-keys"] for death in headers["x-death"]] == [[middle, second]] * 2
    assert take(raw, second).properties["headers"]["CC"] == [second]


# -- direct reply-to ---------------------------------------------------------------------------------------------------


def requester(client: RawClient, number: int, responder: RawClient, queue: str) -> str:
    """Make a channel a requester, and return the reply name that its responder sees."""
    client.call("basic.consume", number, queue="amq.rabbitmq.reply-to", no_ack=True)
    client.publish(b"?", routing_key=queue, channel=number, reply_to="amq.rabbitmq.reply-to")
    return str(take(responder, queue).properties["reply_to"])


def test_copies_of_a_reply(raw: RawClient, other: RawClient, unique: str) -> None:
    """Each requester gets one reply, however often it is named; queues get their copies as well."""
    raw.call("queue.declare", queue=unique, auto_delete=True)
    names = [requester(raw, number, other, unique) for number in (1, 2)]
    beside = exclusive(other)
    other.call("confirm.select")
    headers = {"CC": [names[1], names[0], beside], "BCC": [names[1], "amq.rabbitmq.reply-to.none"]}
    other.publish(b"!", routing_key=names[0], headers=headers)
    assert answers(other, 1) == "a"
    got = [raw.read("basic.deliver"), raw.read("basic.deliver")]
    assert sorted(each.channel for each in got) == [1, 2]
    for each in got:
        assert (each.body, each["routing_key"]) == (b"!", names[0])
        assert list(each.properties["headers"]) == ["CC"]
    assert content(other, beside) == [b"!"]
    raw.quiet()
    raw.call("queue.delete", queue=unique)
