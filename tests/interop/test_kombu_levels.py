"""kombu's and leveret's declarations of delay levels, over each other, on leveret and on RabbitMQ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from kombu import Connection
from kombu.transport.native_delayed_delivery import (
    calculate_routing_key,
    declare_native_delayed_delivery_exchanges_and_queues,
    level_name,
)

from leveret.client import BlockingChannel, BlockingConnection, ChannelClosed
from leveret.delay import CELERY, CELERY_CLASSIC, Layout


def named(prefix: str, queue_type: str) -> Layout:
    """Return Celery's layout as kombu names it with a prefix, "" = without."""
    layout = CELERY if queue_type == "quorum" else CELERY_CLASSIC
    return replace(layout, prefix=f"{prefix}_celery_delayed") if prefix else layout


def remove(channel: BlockingChannel, layout: Layout) -> None:
    channel.delete_exchange(layout.delivery_exchange)
    for level in range(layout.levels):
        channel.delete_queue(layout.level_name(level))
        channel.delete_exchange(layout.level_name(level))


@pytest.mark.parametrize("ours_first", [True, False], ids=["ours first", "theirs first"])
@pytest.mark.parametrize("queue_type", ["quorum", "classic"])
@pytest.mark.parametrize("prefix", ["", "shop"])
def test_one_over_the_other(url: str, prefix: str, queue_type: str, ours_first: bool) -> None:
    """No declaration is refused, and both declare the same names: kombu's prefix is a layout, too."""
    layout = named(prefix, queue_type)
    with BlockingConnection(url, reconnect=False) as connection, Connection(url) as theirs:
        channel = connection.channel()
        declarations: list[Callable[[], None]] = [
            lambda: layout.declare_blocking(channel),
            lambda: declare_native_delayed_delivery_exchanges_and_queues(theirs, queue_type, prefix),
        ]
        for declare in declarations if ours_first else reversed(declarations):
            declare()
        for level in range(28):
            assert channel.declare_queue(level_name(level, prefix), passive=True).message_count == 0
        remove(channel, layout)


def test_the_other_type_is_refused(url: str) -> None:
    """Two applications disagree about the queue type of the levels: the error names the argument that differs."""
    with BlockingConnection(url, reconnect=False) as connection, Connection(url) as theirs:
        declare_native_delayed_delivery_exchanges_and_queues(theirs, "classic", "shop")
        with pytest.raises(ChannelClosed, match="inequivalent arg 'x-queue-type'") as refused:
            named("shop", "quorum").declare_blocking(connection.channel())
        assert refused.value.code == 406
        remove(connection.channel(), named("shop", "classic"))


@pytest.mark.parametrize("countdown", [1, 10, 2**27, 2**28 - 1])
def test_keys_are_the_same(countdown: int) -> None:
    assert CELERY.routing_key(countdown, "a.b") == calculate_routing_key(countdown, "a.b")
    assert CELERY.entrance(countdown) == level_name(27)
