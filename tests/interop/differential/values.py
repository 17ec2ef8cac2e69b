"""Names, arguments and properties in scripts: those that applications use, then odd and wrong ones."""

from __future__ import annotations

from typing import Any

from ...conformance.raw import Typed

# Errors close channels and end the interesting part, so plain values are drawn more often than odd ones.
REPLY_TO = "amq.rabbitmq.reply-to"
WHERE = ("1.1", "1.1", "1.1", "1.2", "2.1", "2.2")
QUEUES = ("q1", "q1", "q2", "q3")
ODD_QUEUES = (
    "", "@gen1", "q4", "q5", "missing", "amq.mine", "q\r\n6", "qé", "q" * 200, REPLY_TO, f"{REPLY_TO}.x", "@reply1",
)  # fmt: skip
PREDECLARED = ("amq.direct", "amq.fanout", "amq.topic", "amq.headers")
EXCHANGES = ("e1", "e1", "e2")
ODD_EXCHANGES = ("e3", "missing", "amq.match", "amq.rabbitmq.trace", "amq.mine", "e\n4", "e" * 200)
KEYS = ("q1", "q1", "q2", "q3", "", "a", "a.b", "*.b", "a.#", "#", "@gen1")
ODD_KEYS = ("missing", "k" * 255, "a..b", ".", "*", "é", "@reply1", "amq.rabbitmq.reply-to", "#.#", "a.*.#")
TAGS = ("", "c1", "c2", "c3", "c4")
ODD_TAGS = ("missing", "@ctag1", "c" * 200)
DELIVERIES: tuple[int | str, ...] = ("@last", "@first")
ODD_DELIVERIES: tuple[int | str, ...] = (0, 0, 1, 2, 3, 99, 2**63 - 1, 2**63, 2**64 - 1)

TYPES = ("direct", "fanout", "topic", "headers", "direct", "fanout", "topic", "headers", "x-recent-history")
# x-random and hash exchanges choose queues in their own way, so they are only declared and bound
ODD_TYPES = ("", "x-missing", "Direct", "x-random", "x-consistent-hash", "x-modulus-hash")

# One value of each wire type, and numbers at the edges.
WRONG: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 60000, 2**31, 2**40, 2**63 - 1, 1.5, "", "a", "1", [], ["a"], {}, {"a": 1},
    Typed("b", 3), Typed("B", 3), Typed("s", 3), Typed("u", 3), Typed("i", 3), Typed("l", 3), Typed("f", 1.0),
    Typed("T", 3), Typed("u", 60000), Typed("i", 60000), Typed("l", 60000), Typed("T", 60000), Typed("x", b"a"),
    Typed("b", -1), Typed("l", -5), Typed("D", b"\1\0\0\0\3"),
)  # fmt: skip

QUEUE_ARGUMENTS: tuple[dict[str, Any], ...] = (
    {}, {}, {},
    {"x-message-ttl": 0},
    {"x-message-ttl": 60000},
    {"x-expires": 60000},
    {"x-max-length": 0},
    {"x-max-length": 1},
    {"x-max-length": 2},
    {"x-max-length": 3},
    {"x-max-length-bytes": 0},
    {"x-max-length-bytes": 10},
    {"x-overflow": "drop-head"},
    {"x-overflow": "reject-publish"},
    {"x-overflow": "reject-publish-dlx"},
    {"x-max-length": 2, "x-overflow": "reject-publish"},
    {"x-max-length": 2, "x-overflow": "reject-publish-dlx"},
    {"x-max-length-bytes": 10, "x-overflow": "reject-publish"},
    {"x-dead-letter-exchange": ""},
    {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q1"},
    {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q2"},
    {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q3"},
    {"x-dead-letter-exchange": "e1"},
    {"x-dead-letter-exchange": "amq.fanout"},
    {"x-dead-letter-exchange": "amq.topic", "x-dead-letter-routing-key": "a.b"},
    {"x-dead-letter-exchange": "missing"},
    {"x-queue-mode": "lazy"},
    {"x-queue-mode": "default"},
    {"x-queue-type": "classic"},
    {"x-queue-type": "quorum"},
    {"x-queue-type": "stream"},
    {"x-of-my-own": 1},
    {"x-max-priority": 1},
    {"x-max-priority": 3},
    {"x-max-priority": 10, "x-max-length": 3},
    {"x-max-priority": 3, "x-max-length": 2, "x-overflow": "reject-publish"},
    {"x-single-active-consumer": True},
    {"x-single-active-consumer": False},
)  # fmt: skip
# one plain value of each argument; all those in WRONG are tried, too
PLAIN_ARGUMENTS: dict[str, Any] = {
    "x-message-ttl": 60000, "x-expires": 60000, "x-max-length": 3, "x-max-length-bytes": 3, "x-overflow": "drop-head",
    "x-dead-letter-exchange": "a", "x-dead-letter-routing-key": "a", "x-queue-mode": "lazy", "x-queue-type": "classic",
    "x-single-active-consumer": True, "x-max-priority": 3, "x-queue-version": 1,
}  # fmt: skip
QUEUE_ARGUMENT_NAMES = tuple(PLAIN_ARGUMENTS)
# the same for a stream
STREAM_ARGUMENTS: dict[str, Any] = {
    "x-max-age": "1h", "x-max-length-bytes": 3, "x-stream-max-segment-size-bytes": 3, "x-initial-cluster-size": 1,
    "x-queue-leader-locator": "random",
}  # fmt: skip
AGES = ("1Y", "2M", "3D", "4h", "5m", "6s", "07D", "0D", "1", "1d", "1.5D", "1D2", "1 D", "99999999999999999999Y")
# an invalid age crashes RabbitMQ's channels, and so does an offset that is neither a word nor a number
OFFSETS: tuple[Any, ...] = (
    *AGES, "first", "last", "next", Typed("x", b"first"),
    *[item for item in WRONG if isinstance(getattr(item, "value", item), int) and not isinstance(item, bool)],
)  # fmt: skip


def wrong(argument: str) -> tuple[Any, ...]:
    """Return the values to try with a queue argument, without times so short that the result would depend on timing."""
    if argument == "x-max-age":
        return (*AGES, *[item for item in WRONG if item not in ("", "a")])
    if argument not in ("x-expires", "x-message-ttl"):
        return WRONG
    return tuple(item for item in WRONG if not _is_short(getattr(item, "value", item)))


def _is_short(item: Any) -> bool:
    return isinstance(item, int) and not isinstance(item, bool) and 0 < item < 60000


EXCHANGE_ARGUMENTS: tuple[dict[str, Any], ...] = (
    {}, {}, {}, {"alternate-exchange": "amq.fanout"}, {"alternate-exchange": "e2"}, {"alternate-exchange": "missing"},
    {"x-of-my-own": 1},
)  # fmt: skip
BINDING_ARGUMENTS: tuple[dict[str, Any], ...] = (
    {}, {}, {}, {}, {"x-match": "all", "a": 1}, {"x-match": "any", "a": 1, "b": "x"}, {"x-match": "all"},
    {"x-match": "any"}, {"x-match": "all", "a": None}, {"a": 1}, {"a": "1"}, {"x-match": "any-with-x", "x-a": 1},
    {"x-match": "all-with-x", "x-a": 1, "a": 1}, {"x-match": "all", "a": Typed("l", 1)},
    {"x-match": "all", "a": 1.0},
)  # fmt: skip
CONSUME_ARGUMENTS: tuple[dict[str, Any], ...] = (
    {}, {}, {}, {}, {"x-priority": 1}, {"x-priority": 10}, {"x-priority": -1}, {"x-of-my-own": 1},
)  # fmt: skip

HEADERS: tuple[dict[str, Any], ...] = (
    {}, {"a": 1}, {"a": 1, "b": "x"}, {"a": Typed("l", 1)}, {"a": "1"}, {"a": 1.0}, {"x-a": 1}, {"x-a": 1, "a": 1},
    {"a": None}, {"CC": ["q2"]}, {"CC": ["q1", "q3"]}, {"BCC": ["q3"]}, {"CC": ["q2"], "BCC": ["q3"]}, {"CC": []},
)  # fmt: skip
ODD_HEADERS: tuple[dict[str, Any], ...] = (
    {"CC": "q2"}, {"BCC": "q2"}, {"CC": 1}, {"CC": ["q2", 1]}, {"CC": None}, {"deep": {"er": [{"a": [1, "x"]}, None]}},
    {"t": Typed("T", 1), "D": Typed("D", b"\1\0\0\0\3"), "x": Typed("x", b"\0\xff"), "f": Typed("f", 1.5)},
)  # fmt: skip
PROPERTIES: tuple[dict[str, Any], ...] = (
    {}, {}, {"delivery_mode": 1}, {"delivery_mode": 2}, {"expiration": "0"}, {"expiration": "60000"},
    {"reply_to": "amq.rabbitmq.reply-to"}, {"priority": 1}, {"priority": 2}, {"priority": 9}, {"user_id": "guest"},
    {"content_type": "text/plain", "correlation_id": "1", "message_id": "2", "type": "t", "app_id": "a",
     "timestamp": 3, "content_encoding": "e", "cluster_id": "c", "reply_to": "q1"},
)  # fmt: skip
ODD_PROPERTIES: tuple[dict[str, Any], ...] = (
    {"delivery_mode": 0}, {"delivery_mode": 3}, {"expiration": ""}, {"expiration": "-1"}, {"expiration": "a"},
    {"expiration": "1a"}, {"expiration": "+0"}, {"expiration": "00"}, {"expiration": "99999999999999"},
    {"user_id": "other"}, {"user_id": ""}, {"priority": 255},
)  # fmt: skip
SIZES = (4, 4, 4, 0, 7, 12)
ODD_SIZES = (4088, 4089, 10000)  # around the maximum that fits into one frame of the second connection
# kind, channel and payload of frames that break the rules, or are rare
FRAMES: tuple[tuple[int, int, bytes], ...] = (
    (8, 0, b""),  # a heartbeat
    (8, 1, b""),  # on a channel
    (3, 1, b"body"),  # a body without a header
    (2, 1, b"\0\x3c\0\0" + b"\0" * 10),  # a header without a method
    (1, 1, b"\0\x3c\0\x63"),  # a method that does not exist
    (1, 9, b"\0\x3c\0\x0a\0\0\0\0\0\0\0"),  # basic.qos on a closed channel
    (1, 0, b"\0\x3c\0\x0a\0\0\0\0\0\0\0"),  # and on channel 0
    (1, 0, b"\0\x0a\0\x46\0\0\0\x03new\x06reason"),  # connection.update-secret
    (1, 1, b"\0\x3c\0\x64\x01"),  # basic.recover-async
    (1, 1, b"\0\x3c\0\x15\0"),  # a method that only brokers send: basic.consume-ok
)
