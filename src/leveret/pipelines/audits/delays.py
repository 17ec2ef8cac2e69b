"""Delays of publishes in SQL: from the binary digits of delay levels, or from headers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

LEVELS: Final = r"^(.+)\.delay-(level-\d\d|delivery)$|^(celery_delayed)_(\d+|delivery)$"
"""Exchanges of delay levels, as NServiceBus, leveret and Celery name them (leveret.delay)."""

UNITS_MS: Final = {"nsb.ms": 1}
"""Units by prefix of layouts that do not count seconds."""

_DIGITS: Final = r"^((?:[01]\.){28}|(?:[01]\.)+)(.+)$"


def in_levels(exchange: Column, routing_key: Column) -> Column:
    """Whether a message is or was in delay levels."""
    return exchange.contains("delay") & exchange.rlike(LEVELS) & routing_key.rlike(_DIGITS)  # the first is the fastest


def destination(routing_key: Column) -> Column:
    """Return the queue or endpoint to which a message in delay levels goes."""
    return F.regexp_extract(routing_key, _DIGITS, 2)


def level_delay_ms(exchange: Column, routing_key: Column, units_ms: Mapping[str, int]) -> Column:
    """Return the delay in the digits of a delay levels' key, BIGINT; units default to 1000 ms unless in
    ``units_ms``."""
    digits = F.replace(F.regexp_extract(routing_key, _DIGITS, 1), F.lit("."), F.lit(""))
    prefix = F.regexp_extract(exchange, LEVELS, 1)
    unit_ms = F.lit(1000)
    for name, ms in {**UNITS_MS, **units_ms}.items():
        unit_ms = F.when(prefix == name, F.lit(ms)).otherwise(unit_ms)
    return F.conv(digits, 2, 10).cast("bigint") * unit_ms


def header_delay_ms(headers: Column) -> Column:
    """Return the delay in headers: x-delay of a delayed exchange, or NServiceBus's seconds; BIGINT or null."""
    seconds = headers["NServiceBus.Transport.RabbitMQ.DelayInSeconds"].try_cast("bigint")
    return F.coalesce(headers["x-delay"].try_cast("bigint"), seconds * 1000)
