"""Conversion of a virtual host's firehose to spans, in a process of its own: the broker's loop stays free."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import Final

from opentelemetry.trace import Tracer

from leveret.client import ClientError, Consumer, connect
from leveret.otel.firehose import Firehose, FirehoseEvent
from leveret.wire.table import Value

logger = logging.getLogger("leveret.otel")

TRACE: Final = "amq.rabbitmq.trace"
# if this process falls behind, the broker drops the oldest events instead of filling its memory
EVENTS_MAX: Final = 100_000
PAUSE_S: Final = 1.0


async def record(url: str, tracer: Tracer, stopping: asyncio.Event, ready: asyncio.Event | None = None) -> None:
    """Record spans until `stopping` is set; reconnect when the connection is lost.

    Args:
        url: the broker's AMQP URL.
        tracer: makes the spans.
        stopping: ends the recording.
        ready: is set when the queue for the events is bound.

    Raises:
        AuthenticationFailed, ValueError: as `leveret.client.connect` raises them, at the first connection only.
    """
    firehose, is_first = Firehose(tracer), True
    try:
        while not stopping.is_set():
            try:
                await _record(url, firehose, stopping, ready)
            except ClientError as error:
                if is_first:
                    raise
                logger.warning("%s; reconnecting", error)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stopping.wait(), PAUSE_S)
            is_first = False
    finally:
        firehose.close()


async def _record(url: str, firehose: Firehose, stopping: asyncio.Event, ready: asyncio.Event | None) -> None:
    async with await connect(url, name="leveret otel", reconnect=False) as connection:
        channel = await connection.channel()
        limits: dict[str, Value] = {"x-max-length": EVENTS_MAX, "x-overflow": "drop-head"}
        queue = (await channel.declare_queue("", durable=False, exclusive=True, arguments=limits)).name
        await channel.bind_queue(queue, TRACE, "#", {"x-leveret-audit": True})
        consumer = await channel.consume(queue, no_ack=True)
        if ready is not None:
            ready.set()
        ending = asyncio.create_task(_cancel_when(stopping, consumer))
        try:
            async for event in consumer:
                fields = event.properties.headers or {}
                firehose.take(FirehoseEvent(event.routing_key, fields, len(event.body), time.time_ns() // 1000))
        finally:
            ending.cancel()


async def _cancel_when(stopping: asyncio.Event, consumer: Consumer) -> None:
    await stopping.wait()
    await consumer.cancel()
