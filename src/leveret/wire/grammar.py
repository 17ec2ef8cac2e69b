"""The grammar of AMQP 0-9-1 with RabbitMQ's extensions, as one table written by hand.

A line per method: its name, class id, method id and fields as "name:type". Types are those of the specification
(section 4.2.1): octet, short, long, longlong, bit, shortstr, longstr, table. Consecutive bits share an octet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # the client needs this module, and runs where there is nothing but Python
    from mypy_extensions import i64

# types of fields as numbers, for the codecs: those of integers are their octets
BIT: Final = 0
SHORTSTR: Final = 16
LONGSTR: Final = 17
TABLE: Final = 18
KINDS: Final[dict[str, int]] = {
    "bit": BIT, "octet": 1, "short": 2, "long": 4, "longlong": 8, "shortstr": SHORTSTR, "longstr": LONGSTR,
    "table": TABLE,
}  # fmt: skip


class Field:
    """A field of a method, as the codecs look at it. kind: of KINDS."""

    def __init__(self, name: str, kind: int) -> None:
        self.name: str = name
        self.kind: i64 = kind


class MethodSpec:
    """One method of the protocol. key = class_id << 16 | method_id, as its first four octets read.

    layout: the fields once more, for the codecs; head: these four octets; blank: the payload with no field given.
    """

    def __init__(self, name: str, class_id: int, method_id: int, fields: tuple[tuple[str, str], ...], has_content: bool) -> None:
        self.name: str = name
        self.class_id: int = class_id
        self.method_id: int = method_id
        self.key: int = class_id << 16 | method_id
        self.fields: tuple[tuple[str, str], ...] = fields
        self.layout: list[Field] = [Field(field, KINDS[kind]) for field, kind in fields]
        self.head: bytes = self.key.to_bytes(4, "big")
        self.blank: bytes = b""  # method.py writes it
        self.has_content: bool = has_content

    def __repr__(self) -> str:
        return f"<{self.name}>"


METHODS: Final[dict[int, MethodSpec]] = {}


def _method(name: str, class_id: int, method_id: int, fields: str = "", has_content: bool = False) -> MethodSpec:
    pairs: list[tuple[str, str]] = []
    for field in fields.split():
        field_name, kind = field.split(":")
        pairs.append((field_name, kind))
    spec = MethodSpec(name, class_id, method_id, tuple(pairs), has_content)
    METHODS[spec.key] = spec
    return spec


_CLOSE = "reply_code:short reply_text:shortstr class_id:short method_id:short"
_QUEUE_COUNTS = "queue:shortstr message_count:long consumer_count:long"
_ROUTE = "exchange:shortstr routing_key:shortstr"
_E2E = "ticket:short destination:shortstr source:shortstr routing_key:shortstr no_wait:bit arguments:table"

CONNECTION_START: Final[MethodSpec] = _method(
    "connection.start", 10, 10,
    "version_major:octet version_minor:octet server_properties:table mechanisms:longstr locales:longstr",
)  # fmt: skip
CONNECTION_START_OK: Final[MethodSpec] = _method(
    "connection.start-ok", 10, 11, "client_properties:table mechanism:shortstr response:longstr locale:shortstr"
)
CONNECTION_SECURE: Final[MethodSpec] = _method("connection.secure", 10, 20, "challenge:longstr")
CONNECTION_SECURE_OK: Final[MethodSpec] = _method("connection.secure-ok", 10, 21, "response:longstr")
CONNECTION_TUNE: Final[MethodSpec] = _method("connection.tune", 10, 30, "channel_max:short frame_max:long heartbeat:short")
CONNECTION_TUNE_OK: Final[MethodSpec] = _method("connection.tune-ok", 10, 31, "channel_max:short frame_max:long heartbeat:short")
CONNECTION_OPEN: Final[MethodSpec] = _method("connection.open", 10, 40, "virtual_host:shortstr reserved_1:shortstr reserved_2:bit")
CONNECTION_OPEN_OK: Final[MethodSpec] = _method("connection.open-ok", 10, 41, "reserved_1:shortstr")
CONNECTION_CLOSE: Final[MethodSpec] = _method("connection.close", 10, 50, _CLOSE)
CONNECTION_CLOSE_OK: Final[MethodSpec] = _method("connection.close-ok", 10, 51)
CONNECTION_BLOCKED: Final[MethodSpec] = _method("connection.blocked", 10, 60, "reason:shortstr")
CONNECTION_UNBLOCKED: Final[MethodSpec] = _method("connection.unblocked", 10, 61)
CONNECTION_UPDATE_SECRET: Final[MethodSpec] = _method("connection.update-secret", 10, 70, "new_secret:longstr reason:shortstr")
CONNECTION_UPDATE_SECRET_OK: Final[MethodSpec] = _method("connection.update-secret-ok", 10, 71)

CHANNEL_OPEN: Final[MethodSpec] = _method("channel.open", 20, 10, "reserved_1:shortstr")
CHANNEL_OPEN_OK: Final[MethodSpec] = _method("channel.open-ok", 20, 11, "reserved_1:longstr")
CHANNEL_FLOW: Final[MethodSpec] = _method("channel.flow", 20, 20, "active:bit")
CHANNEL_FLOW_OK: Final[MethodSpec] = _method("channel.flow-ok", 20, 21, "active:bit")
CHANNEL_CLOSE: Final[MethodSpec] = _method("channel.close", 20, 40, _CLOSE)
CHANNEL_CLOSE_OK: Final[MethodSpec] = _method("channel.close-ok", 20, 41)

ACCESS_REQUEST: Final[MethodSpec] = _method(
    "access.request", 30, 10, "realm:shortstr exclusive:bit passive:bit active:bit write:bit read:bit"
)
ACCESS_REQUEST_OK: Final[MethodSpec] = _method("access.request-ok", 30, 11, "ticket:short")

EXCHANGE_DECLARE: Final[MethodSpec] = _method(
    "exchange.declare", 40, 10,
    "ticket:short exchange:shortstr type:shortstr passive:bit durable:bit auto_delete:bit internal:bit no_wait:bit arguments:table",
)  # fmt: skip
EXCHANGE_DECLARE_OK: Final[MethodSpec] = _method("exchange.declare-ok", 40, 11)
EXCHANGE_DELETE: Final[MethodSpec] = _method("exchange.delete", 40, 20, "ticket:short exchange:shortstr if_unused:bit no_wait:bit")
EXCHANGE_DELETE_OK: Final[MethodSpec] = _method("exchange.delete-ok", 40, 21)
EXCHANGE_BIND: Final[MethodSpec] = _method("exchange.bind", 40, 30, _E2E)
EXCHANGE_BIND_OK: Final[MethodSpec] = _method("exchange.bind-ok", 40, 31)
EXCHANGE_UNBIND: Final[MethodSpec] = _method("exchange.unbind", 40, 40, _E2E)
EXCHANGE_UNBIND_OK: Final[MethodSpec] = _method("exchange.unbind-ok", 40, 51)

QUEUE_DECLARE: Final[MethodSpec] = _method(
    "queue.declare", 50, 10,
    "ticket:short queue:shortstr passive:bit durable:bit exclusive:bit auto_delete:bit no_wait:bit arguments:table",
)  # fmt: skip
QUEUE_DECLARE_OK: Final[MethodSpec] = _method("queue.declare-ok", 50, 11, _QUEUE_COUNTS)
QUEUE_BIND: Final[MethodSpec] = _method(
    "queue.bind", 50, 20,
    "ticket:short queue:shortstr exchange:shortstr routing_key:shortstr no_wait:bit arguments:table",
)  # fmt: skip
QUEUE_BIND_OK: Final[MethodSpec] = _method("queue.bind-ok", 50, 21)
QUEUE_PURGE: Final[MethodSpec] = _method("queue.purge", 50, 30, "ticket:short queue:shortstr no_wait:bit")
QUEUE_PURGE_OK: Final[MethodSpec] = _method("queue.purge-ok", 50, 31, "message_count:long")
QUEUE_DELETE: Final[MethodSpec] = _method(
    "queue.delete", 50, 40, "ticket:short queue:shortstr if_unused:bit if_empty:bit no_wait:bit"
)
QUEUE_DELETE_OK: Final[MethodSpec] = _method("queue.delete-ok", 50, 41, "message_count:long")
QUEUE_UNBIND: Final[MethodSpec] = _method(
    "queue.unbind", 50, 50, "ticket:short queue:shortstr exchange:shortstr routing_key:shortstr arguments:table"
)
QUEUE_UNBIND_OK: Final[MethodSpec] = _method("queue.unbind-ok", 50, 51)

BASIC_QOS: Final[MethodSpec] = _method("basic.qos", 60, 10, "prefetch_size:long prefetch_count:short global:bit")
BASIC_QOS_OK: Final[MethodSpec] = _method("basic.qos-ok", 60, 11)
BASIC_CONSUME: Final[MethodSpec] = _method(
    "basic.consume", 60, 20,
    "ticket:short queue:shortstr consumer_tag:shortstr no_local:bit no_ack:bit exclusive:bit no_wait:bit arguments:table",
)  # fmt: skip
BASIC_CONSUME_OK: Final[MethodSpec] = _method("basic.consume-ok", 60, 21, "consumer_tag:shortstr")
BASIC_CANCEL: Final[MethodSpec] = _method("basic.cancel", 60, 30, "consumer_tag:shortstr no_wait:bit")
BASIC_CANCEL_OK: Final[MethodSpec] = _method("basic.cancel-ok", 60, 31, "consumer_tag:shortstr")
BASIC_PUBLISH: Final[MethodSpec] = _method("basic.publish", 60, 40, f"ticket:short {_ROUTE} mandatory:bit immediate:bit", True)
BASIC_RETURN: Final[MethodSpec] = _method("basic.return", 60, 50, f"reply_code:short reply_text:shortstr {_ROUTE}", True)
BASIC_DELIVER: Final[MethodSpec] = _method(
    "basic.deliver", 60, 60, f"consumer_tag:shortstr delivery_tag:longlong redelivered:bit {_ROUTE}", True
)
BASIC_GET: Final[MethodSpec] = _method("basic.get", 60, 70, "ticket:short queue:shortstr no_ack:bit")
BASIC_GET_OK: Final[MethodSpec] = _method(
    "basic.get-ok", 60, 71, f"delivery_tag:longlong redelivered:bit {_ROUTE} message_count:long", True
)
BASIC_GET_EMPTY: Final[MethodSpec] = _method("basic.get-empty", 60, 72, "reserved_1:shortstr")
BASIC_ACK: Final[MethodSpec] = _method("basic.ack", 60, 80, "delivery_tag:longlong multiple:bit")
BASIC_REJECT: Final[MethodSpec] = _method("basic.reject", 60, 90, "delivery_tag:longlong requeue:bit")
BASIC_RECOVER_ASYNC: Final[MethodSpec] = _method("basic.recover-async", 60, 100, "requeue:bit")
BASIC_RECOVER: Final[MethodSpec] = _method("basic.recover", 60, 110, "requeue:bit")
BASIC_RECOVER_OK: Final[MethodSpec] = _method("basic.recover-ok", 60, 111)
BASIC_NACK: Final[MethodSpec] = _method("basic.nack", 60, 120, "delivery_tag:longlong multiple:bit requeue:bit")

CONFIRM_SELECT: Final[MethodSpec] = _method("confirm.select", 85, 10, "no_wait:bit")
CONFIRM_SELECT_OK: Final[MethodSpec] = _method("confirm.select-ok", 85, 11)

TX_SELECT: Final[MethodSpec] = _method("tx.select", 90, 10)
TX_SELECT_OK: Final[MethodSpec] = _method("tx.select-ok", 90, 11)
TX_COMMIT: Final[MethodSpec] = _method("tx.commit", 90, 20)
TX_COMMIT_OK: Final[MethodSpec] = _method("tx.commit-ok", 90, 21)
TX_ROLLBACK: Final[MethodSpec] = _method("tx.rollback", 90, 30)
TX_ROLLBACK_OK: Final[MethodSpec] = _method("tx.rollback-ok", 90, 31)
