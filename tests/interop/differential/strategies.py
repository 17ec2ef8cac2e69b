"""Hypothesis strategies of scripts: the possible arguments of each method, and its frequency."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from . import values
from .author import ODD_IN, Author
from .script import Script, Step

SHORTEST, LONGEST = 8, 24
Said = dict[str, Any]


def _queue_declare(author: Author) -> Said:
    arguments = author.queue_arguments()
    if author.chance(ODD_IN):
        argument = author.of(values.QUEUE_ARGUMENT_NAMES)
        arguments[argument] = author.of(values.wrong(argument))
    name = author.new(author.queues, values.QUEUES, values.ODD_QUEUES)
    flags = author.flags(passive=12, durable=3, exclusive=8, auto_delete=8, no_wait=12)
    if arguments.get("x-queue-type") in ("quorum", "stream"):
        # so it is refused: quorum queues and streams answer at no fixed time, see tests/conformance
        flags.pop("durable", None)
    if not name:
        flags.pop("no_wait", None)  # the client would never learn the queue's name
    return {"queue": name, **flags, "arguments": arguments}


def _queue_bind(author: Author) -> Said:
    return {
        "queue": author.queue(), "exchange": author.source(), "routing_key": author.key(),
        **author.flags(no_wait=12), "arguments": author.of(values.BINDING_ARGUMENTS),
    }  # fmt: skip


def _queue_unbind(author: Author) -> Said:
    return {name: item for name, item in _queue_bind(author).items() if name != "no_wait"}


def _queue_purge(author: Author) -> Said:
    return {"queue": author.queue(), **author.flags(no_wait=12)}


def _queue_delete(author: Author) -> Said:
    return {"queue": author.queue(), **author.flags(if_unused=4, if_empty=4, no_wait=12)}


def _exchange_declare(author: Author) -> Said:
    arguments = dict(author.of(values.EXCHANGE_ARGUMENTS))
    if author.chance(ODD_IN):
        arguments["alternate-exchange"] = author.of(values.WRONG)
    name = author.new(author.exchanges, values.EXCHANGES, (*values.ODD_EXCHANGES, "", "amq.direct"))
    flags = author.flags(passive=12, durable=4, auto_delete=6, internal=12, no_wait=12)
    return {"exchange": name, "type": author.of(values.TYPES, values.ODD_TYPES), **flags, "arguments": arguments}


def _exchange_delete(author: Author) -> Said:
    name = author.of(values.EXCHANGES, (*values.ODD_EXCHANGES, ""))
    return {"exchange": name, **author.flags(if_unused=3, no_wait=12)}


def _exchange_bind(author: Author) -> Said:
    return {
        "destination": author.source(), "source": author.source(), "routing_key": author.key(),
        **author.flags(no_wait=12), "arguments": author.of(values.BINDING_ARGUMENTS),
    }  # fmt: skip


def _publish(author: Author) -> Said:
    properties = dict(author.of(values.PROPERTIES, values.ODD_PROPERTIES))
    if author.chance(3):
        properties |= author.of(values.PROPERTIES)
    if author.chance(4):
        properties["headers"] = author.of(values.HEADERS, values.ODD_HEADERS)
    if properties.get("reply_to") == values.REPLY_TO and not author.chance(3):
        del properties["reply_to"]  # it closes the channel if no consumer is waiting for replies
    return {
        "exchange": author.target(), "routing_key": author.key(), **author.flags(mandatory=4, immediate=150),
        "properties": properties, "count": author.of((1, 1, 2, 3, 4)),
        "size": author.of(values.SIZES, values.ODD_SIZES),
    }  # fmt: skip


def _consume(author: Author) -> Said:
    return {
        "queue": author.queue(), "consumer_tag": author.new(author.tags, values.TAGS, values.ODD_TAGS),
        **author.flags(no_ack=4, exclusive=12, no_wait=12, no_local=12),
        "arguments": author.consumer_arguments(),
    }  # fmt: skip


def _consume_replies(author: Author) -> Said:
    return {"queue": values.REPLY_TO, "consumer_tag": author.of(("r1", "c1", "")), "no_ack": not author.chance(12)}


def _cancel(author: Author) -> Said:
    return {"consumer_tag": author.of(tuple(author.tags) or values.TAGS, values.ODD_TAGS), **author.flags(no_wait=12)}


def _get(author: Author) -> Said:
    return {"queue": author.queue(), **author.flags(no_ack=3)}


def _ack(author: Author) -> Said:
    return {"delivery_tag": author.of(values.DELIVERIES, values.ODD_DELIVERIES), **author.flags(multiple=4)}


def _nack(author: Author) -> Said:
    return {**_ack(author), **author.flags(requeue=2)}


def _reject(author: Author) -> Said:
    return {"delivery_tag": author.of(values.DELIVERIES, values.ODD_DELIVERIES), **author.flags(requeue=2)}


def _qos(author: Author) -> Said:
    size, count = author.of((0,), (1,)), author.of((1, 2, 3, 0, 10))
    return {**({"prefetch_size": size} if size else {}), "prefetch_count": count, **author.flags(**{"global": 3})}


def _recover(author: Author) -> Said:
    return {"requeue": not author.chance(12)}


def _flow(author: Author) -> Said:
    return {"active": not author.chance(6)}


def _confirm(author: Author) -> Said:
    return author.flags(no_wait=12)


def _nothing(author: Author) -> Said:
    return {}


def _close(author: Author) -> Said:
    return {"reply_code": 200, "reply_text": "bye"}


def _secret(author: Author) -> Said:
    return {"new_secret": "guest", "reason": "none"}


def _frame(author: Author) -> Said:
    kind, number, payload = author.of(values.FRAMES)
    return {"kind": kind, "channel": number, "payload": payload}


# (frequency, method, arguments); methods with effects are the most frequent
STEPS: tuple[tuple[int, str, Callable[[Author], Said]], ...] = (
    (120, "basic.publish", _publish),
    (40, "queue.declare", _queue_declare),
    (40, "basic.consume", _consume),
    (30, "basic.get", _get),
    (30, "basic.ack", _ack),
    (30, "basic.nack", _nack),
    (15, "basic.reject", _reject),
    (18, "basic.qos", _qos),
    (20, "queue.bind", _queue_bind),
    (16, "exchange.declare", _exchange_declare),
    (12, "exchange.bind", _exchange_bind),
    (12, "basic.cancel", _cancel),
    (8, "basic.recover", _recover),
    (2, "basic.recover-async", _recover),
    (8, "confirm.select", _confirm),
    (5, "tx.select", _nothing),
    (14, "tx.commit", _nothing),
    (8, "tx.rollback", _nothing),
    (8, "queue.unbind", _queue_unbind),
    (8, "queue.purge", _queue_purge),
    (8, "queue.delete", _queue_delete),
    (8, "exchange.delete", _exchange_delete),
    (4, "exchange.unbind", _exchange_bind),
    (8, "basic.consume", _consume_replies),
    (3, "channel.close", _close),
    (2, "channel.flow", _flow),
    (1, "channel.open", _nothing),
    (1, "connection.close", _close),
    (1, "connection.update-secret", _secret),
    (2, "lose", _nothing),
    (2, "frame", _frame),
)
# the theme of a script: factors for the frequencies of methods, and prefixes of the arguments of most queues
THEMES: dict[str, tuple[dict[str, int], tuple[str, ...]]] = {
    "anything": ({}, ()),
    "consumers": (
        {"basic.consume": 3, "basic.qos": 3, "basic.cancel": 3, "basic.ack": 2, "basic.recover": 2, "queue.delete": 2},
        ("x-single", "x-max-priority"),
    ),
    "dead letters": (
        {"basic.nack": 3, "basic.reject": 3, "basic.get": 2, "queue.declare": 2},
        ("x-dead", "x-dead", "x-message-ttl", "x-max-length"),
    ),
    "limits": ({"confirm.select": 3, "basic.nack": 2, "basic.publish": 2}, ("x-max-length", "x-overflow", "x-dead")),
    "routing": (
        {"exchange.declare": 4, "exchange.bind": 4, "queue.bind": 4, "queue.unbind": 3, "exchange.unbind": 3,
         "exchange.delete": 2, "queue.delete": 2},
        (),
    ),
    "transactions": ({"tx.select": 6, "tx.commit": 4, "tx.rollback": 3, "basic.ack": 2}, ("x-dead", "x-max-length")),
}  # fmt: skip


def _bag(more: dict[str, int]) -> tuple[tuple[str, Callable[[Author], Said]], ...]:
    return tuple((method, said) for weight, method, said in STEPS for _ in range(weight * more.get(method, 1)))


_BAGS = {name: _bag(more) for name, (more, _) in THEMES.items()}
_CONTENT = ("properties", "count", "size")


def _step(author: Author, method: str, said: Callable[[Author], Said]) -> Step:
    where = author.where("tx" if method in ("tx.commit", "tx.rollback") else "")
    if method in ("tx.select", "confirm.select"):
        author.modes.setdefault(where, method.partition(".")[0])
    elif method.startswith("connection."):
        where = f"{where[0]}.0"
    elif method.startswith("tx.") and author.modes.get(where) != "tx" and not author.chance(8):
        method, said = "basic.publish", _publish
    args = said(author)
    more = {name: args.pop(name) for name in _CONTENT if name in args}
    # omitted fields are empty anyway, and the script is easier to read
    return Step(where, method, {name: item for name, item in args.items() if item not in ("", {})}, **more)


@st.composite
def scripts(draw: Callable[[Any], Any]) -> Script:
    """Draw a script that begins with a queue."""
    theme = draw(st.sampled_from(tuple(THEMES)))
    author = Author(draw, THEMES[theme][1])
    script = [_step(author, "queue.declare", _queue_declare) for _ in range(author.of((1, 2, 3)))]
    for _ in range(draw(st.integers(SHORTEST, LONGEST))):
        script.append(_step(author, *author.of(_BAGS[theme])))
    return script
