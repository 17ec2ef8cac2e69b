"""The options of ``format("leveret")``, read from Spark's strings and checked before anything connects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from leveret.delay import SECONDS, Layout

URL_DEFAULT = "amqp://guest:guest@localhost:5672/"

PREFETCH_MAX = 65_535
"""The prefetch of basic.qos is a 16-bit number, so no more messages than this can be unacknowledged."""


def _number(options: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    text = options.get(name)
    if text is None:
        return default
    try:
        number = int(text)
    except ValueError:
        raise ValueError(f"option {name} must be a whole number, not {text!r}") from None
    if not least <= number <= most:
        raise ValueError(f"option {name} must be {least} to {most}, not {number}")
    return number


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name)
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise ValueError(f"option {name} must be true or false, not {text!r}")
    return text.lower() == "true"


@dataclass(frozen=True)
class SourceOptions:
    """What the source needs to know: ``url``, ``queue`` and how many rows a micro-batch holds at most."""

    queue: str
    url: str = URL_DEFAULT
    rows_max: int = 10_000

    @staticmethod
    def parse(options: Mapping[str, str]) -> SourceOptions:
        """Read ``queue`` (required), ``url`` and ``maxRowsPerTrigger``; ``ValueError`` names what is wrong."""
        queue = options.get("queue")
        if not queue:
            raise ValueError("option queue is missing: the name of the queue to read")
        rows_max = _number(options, "maxRowsPerTrigger", 10_000, 1, PREFETCH_MAX)
        return SourceOptions(queue, options.get("url", URL_DEFAULT), rows_max)

    @property
    def prefetch_count(self) -> int:
        """Two micro-batches: one that Spark works on, and the next, which is on its way meanwhile."""
        return min(PREFETCH_MAX, 2 * self.rows_max)


@dataclass(frozen=True)
class SinkOptions:
    """What the sink needs to know; rows override ``exchange`` and ``routing_key`` by their columns.

    ``confirm_window`` is the number of messages that may be unconfirmed at a time, ``confirm_timeout_s`` how long the
    last confirms may take (seconds), ``layout`` the delay levels of rows with a ``delay``.
    """

    url: str = URL_DEFAULT
    exchange: str = ""
    routing_key: str = ""
    mandatory: bool = True
    persistent: bool = True
    confirm_window: int = 1000
    confirm_timeout_s: int = 60
    layout: Layout = field(default_factory=Layout)

    @staticmethod
    def parse(options: Mapping[str, str]) -> SinkOptions:
        """Read the sink's options; ``queue`` is short for the default exchange with that routing key.

        Raises ``ValueError`` naming the option that is wrong.
        """
        queue = options.get("queue")
        exchange = options.get("exchange", "")
        routing_key = options.get("routingKey", "")
        if queue and (exchange or routing_key):
            raise ValueError("option queue excludes exchange and routingKey: it means the default exchange")
        return SinkOptions(
            url=options.get("url", URL_DEFAULT),
            exchange=exchange,
            routing_key=queue or routing_key,
            mandatory=_flag(options, "mandatory", True),
            persistent=_flag(options, "persistent", True),
            confirm_window=_number(options, "confirmWindow", 1000, 1, 1_000_000),
            confirm_timeout_s=_number(options, "confirmTimeout", 60, 1, 86_400),
            layout=_layout(options),
        )


def _layout(options: Mapping[str, str]) -> Layout:
    unit_ms = _number(options, "delayUnitMs", SECONDS.unit_ms, 1, 86_400_000)
    prefix = options.get("delayPrefix")
    if prefix is not None:
        return Layout(prefix, unit_ms=unit_ms)
    if unit_ms == SECONDS.unit_ms:
        return SECONDS
    if unit_ms == 1:
        return Layout("nsb.ms", unit_ms=1)
    raise ValueError(f"option delayUnitMs {unit_ms} needs a delayPrefix: {SECONDS.prefix!r} belongs to seconds")
