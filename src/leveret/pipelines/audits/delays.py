"""Delays as publishes say them, in SQL: by the binary digits of delay levels, or by headers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

LEVELS: Final = r"^(.+)\.delay-(level-\d\d|delivery)$|^(celery_delayed)_(\d+|delivery)$"
"""Exchanges of delay levels, as NServiceBus, leveret and Celery name them (leveret.delay)."""

UNITS_MS: Final = {"nsb.ms": 1}
"""Units of the layouts that do not count seconds, by prefix."""

_DIGITS: Final = r"^((?:[01]\.){28}|(?:[01]\.)+)(.+)$"


def in_levels(exchange: Column, routing_key: Column) -> Column:
    """Whether a message is, or was, on its way through delay levels."""
    return exchange.rlike(LEVELS) & routing_key.rlike(_DIGITS)


def destination(routing_key: Column) -> Column:
    """The queue or endpoint that a message in delay levels is for."""
    return F.regexp_extract(routing_key, _DIGITS, 2)


def level_delay_ms(exchange: Column, routing_key: Column, units_ms: Mapping[str, int]) -> Column:
    """The delay that the digits of a key in delay levels say, BIGINT. units_ms: by prefix, 1000 for all others."""
    digits = F.replace(F.regexp_extract(routing_key, _DIGITS, 1), F.lit("."), F.lit(""))
    prefix = F.regexp_extract(exchange, LEVELS, 1)
    unit_ms = F.lit(1000)
    for name, ms in {**UNITS_MS, **units_ms}.items():
        unit_ms = F.when(prefix == name, F.lit(ms)).otherwise(unit_ms)
    return F.conv(digits, 2, 10).cast("bigint") * unit_ms


def header_delay_ms(headers: Column) -> Column:
    """The delay that headers ask for: x-delay of a delayed exchange, or NServiceBus's seconds; BIGINT or null."""
    seconds = headers["NServiceBus.Transport.RabbitMQ.DelayInSeconds"].try_cast("bigint")
    return F.coalesce(headers["x-delay"].try_cast("bigint"), seconds * 1000)
