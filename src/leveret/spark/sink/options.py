"""The options of the sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from leveret.delay import MILLISECONDS, NSERVICEBUS, Layout
from leveret.spark.options import URL_DEFAULT, flag, number, url_of

AUTO: Final = "auto"
EXACTLY_ONCE: Final = "exactly-once"
AT_LEAST_ONCE: Final = "at-least-once"

DAY_S: Final = 86_400
BATCH_MAX: Final = (1 << 63) - 1
QUERY_OCTETS_MAX: Final = 200
"""Limit for a query's name, which is part of a queue's name, limited to 255 octets."""

_PROPERTIES: Final = {
    "contentType": "content_type", "contentEncoding": "content_encoding", "replyTo": "reply_to",
    "expiration": "expiration", "type": "type", "userId": "user_id", "appId": "app_id",
}  # fmt: skip


@dataclass(frozen=True)
class SinkOptions:
    """The sink's options; a row's columns override ``exchange``, ``routing_key`` and ``properties``.

    Attributes:
        confirm_window: messages that may be unconfirmed at a time.
        confirm_timeout_s: seconds to wait for the last confirms.
        layout: the delay levels for rows with ``delay`` or ``at``.
        properties: default properties by AMQP name.
        message_id_column: the column with message ids; "" for message_id.
        delivery: :data:`AUTO`, :data:`EXACTLY_ONCE` or :data:`AT_LEAST_ONCE`.
        stage_expires_s: seconds after which a stage expires unless it is released.
        query: with ``batch``, names a write that may be repeated; "" if it may not.
        batch: number of the write; -1 without ``query``.
    """

    url: str = URL_DEFAULT
    exchange: str = ""
    routing_key: str = ""
    mandatory: bool = True
    confirm_window: int = 10_000
    confirm_timeout_s: int = 60
    layout: Layout = NSERVICEBUS
    properties: dict[str, str | int] = field(default_factory=lambda: {"delivery_mode": 2})
    message_id_column: str = ""
    delivery: str = AUTO
    stage_expires_s: int = DAY_S
    query: str = ""
    batch: int = -1

    @staticmethod
    def parse(options: Mapping[str, str]) -> SinkOptions:
        """Read the sink's options; ``queue`` (or ``stream``) means the default exchange and this name as routing key.

        Raises ``ValueError``, which names the wrong option.
        """
        named = [name for name in ("queue", "stream") if options.get(name)]
        if named and (options.get("exchange") or options.get("routingKey") or len(named) > 1):
            others = "exchange and routingKey, because it publishes to the default exchange"
            raise ValueError(f"option {named[0]} excludes {others if len(named) == 1 else named[1]}")
        delivery = options.get("delivery", AUTO)
        if delivery not in (AUTO, EXACTLY_ONCE, AT_LEAST_ONCE):
            raise ValueError(f"option delivery must be {AUTO}, {EXACTLY_ONCE} or {AT_LEAST_ONCE}, not {delivery!r}")
        query, batch = _written(options)
        return SinkOptions(
            url=url_of(options),
            exchange=_short(options, "exchange"),
            routing_key=_short(options, named[0] if named else "routingKey"),
            mandatory=flag(options, "mandatory", True),
            confirm_window=number(options, "confirmWindow", 10_000, 1, 1_000_000),
            confirm_timeout_s=number(options, "confirmTimeout", 60, 1, DAY_S),
            layout=_layout(options),
            properties=_properties(options),
            message_id_column=options.get("messageIdColumn", ""),
            delivery=delivery,
            stage_expires_s=number(options, "stageExpires", DAY_S, 1, 365 * DAY_S),
            query=query,
            batch=batch,
        )


def _written(options: Mapping[str, str]) -> tuple[str, int]:
    query = options.get("query", "")
    if ("query" in options) != ("batch" in options):
        raise ValueError("options query and batch together name a write: give both or neither")
    if len(query.encode()) > QUERY_OCTETS_MAX or ("query" in options and not query):
        raise ValueError(f"option query must have 1 to {QUERY_OCTETS_MAX} octets, not {len(query.encode())}")
    return query, number(options, "batch", -1, 0, BATCH_MAX)


def _properties(options: Mapping[str, str]) -> dict[str, str | int]:
    found: dict[str, str | int] = {"delivery_mode": 2 if flag(options, "persistent", True) else 1}
    for name, its_property in _PROPERTIES.items():
        if name in options:
            found[its_property] = _short(options, name)
    if "priority" in options:
        found["priority"] = number(options, "priority", 0, 0, 255)
    return found


def _short(options: Mapping[str, str], name: str) -> str:
    text = options.get(name, "")
    if len(text.encode()) > 255:
        raise ValueError(f"option {name} has {len(text.encode())} octets, but AMQP allows only 255")
    return text


def _layout(options: Mapping[str, str]) -> Layout:
    unit_ms = number(options, "delayUnitMs", NSERVICEBUS.unit_ms, 1, 86_400_000)
    prefix = options.get("delayPrefix")
    if prefix is not None:
        return Layout(prefix, unit_ms=unit_ms)
    if unit_ms == NSERVICEBUS.unit_ms:
        return NSERVICEBUS
    if unit_ms == 1:
        return MILLISECONDS
    raise ValueError(
        f"option delayUnitMs {unit_ms} needs a delayPrefix: {NSERVICEBUS.prefix!r} is for units of a second"
    )
