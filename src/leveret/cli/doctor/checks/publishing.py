"""Checks of publishers: confirms, unroutable messages, and the cost of opening and closing connections."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from leveret.cli.doctor.check import Check, Hit, Severity
from leveret.cli.doctor.observation import Observation, Row, count
from leveret.cli.terminal import counted

CONNECTIONS_PER_S: Final = 1.0
CHANNELS_PER_S: Final = 5.0
QUEUES_PER_S: Final = 1.0
CHANNELS_MANY: Final = 200


def without_confirms(seen: Observation) -> Iterator[Hit]:
    for row in seen.rows("channels"):
        published = count(row, "message_stats.publish")
        if published and not row.get("confirm") and not row.get("transactional") and not _is_link(row):
            yield Hit(
                f"channel {row['name']!r}",
                f"user {row.get('user')!r} has published {counted(published, 'message')} on it without confirms",
                weight=published,
            )


def unroutable(seen: Observation) -> Iterator[Hit]:
    for vhost in seen.rows("vhosts"):
        dropped = count(vhost, "message_stats.drop_unroutable")
        if not dropped:
            continue
        channels = {
            row["name"]: count(row, "message_stats.drop_unroutable")
            for row in seen.rows("channels")
            if row["vhost"] == vhost["name"] and count(row, "message_stats.drop_unroutable")
        }
        by = "; the channels that published them are closed"
        if channels:
            name = max(channels, key=lambda each: channels[each])
            by = f"; {channels[name]:,} of them by channel {name!r}"
        published = count(vhost, "message_stats.publish")
        yield Hit(
            f"virtual host {vhost['name']!r}",
            f"{dropped:,} of {counted(published, 'message')} published reached no queue and were dropped{by}",
            {"VHOST": vhost["name"]},
        )


def connection_churn(seen: Observation) -> Iterator[Hit]:
    rate = seen.overview_rate("churn_rates.connection_created")
    if rate >= CONNECTIONS_PER_S:
        published = seen.overview_rate("message_stats.publish")
        yield Hit(
            "broker",
            f"{rate:,.1f} connections opened per second, for {published:,.1f} messages published; "
            f"{len(seen.rows('connections')):,} are open now",
        )


def channel_churn(seen: Observation) -> Iterator[Hit]:
    channels = seen.overview_rate("churn_rates.channel_created")
    connections = seen.overview_rate("churn_rates.connection_created")
    # otherwise it is a consequence of opening connections
    if channels >= CHANNELS_PER_S and channels > 3 * connections:
        published = seen.overview_rate("message_stats.publish")
        yield Hit("broker", f"{channels:,.1f} channels opened per second, for {published:,.1f} messages published")


def queue_churn(seen: Observation) -> Iterator[Hit]:
    created = seen.overview_rate("churn_rates.queue_created")
    deleted = seen.overview_rate("churn_rates.queue_deleted")
    if created >= QUEUES_PER_S and deleted >= QUEUES_PER_S:
        short = sum(1 for row in seen.rows("queues") if row.get("exclusive") or row.get("auto_delete"))
        yield Hit(
            "broker",
            f"{created:,.1f} queues declared and {deleted:,.1f} deleted per second; {counted(short, 'queue')} "
            "exclusive or auto-delete now",
        )


def many_channels(seen: Observation) -> Iterator[Hit]:
    for row in seen.rows("connections"):
        channels, channels_max = count(row, "channels"), count(row, "channel_max")
        if channels >= CHANNELS_MANY or (channels_max and channels > 0.8 * channels_max):
            yield Hit(_connection(row), f"{counted(channels, 'channel')} open, of {channels_max or 65535:,} at most")


def blocked(seen: Observation) -> Iterator[Hit]:
    for row in seen.rows("connections"):
        if row.get("state") in ("blocked", "blocking", "flow"):
            yield Hit(_connection(row), f"its state is {row['state']!r}")


def without_heartbeat(seen: Observation) -> Iterator[Hit]:
    for row in seen.rows("connections"):
        if row.get("type", "network") == "network" and row.get("timeout") == 0:
            yield Hit(_connection(row), "its heartbeat is 0")


def _connection(row: Row) -> str:
    provided = row.get("user_provided_name")
    return f"connection {row['name']!r}" + (f" ({provided})" if provided else "")


def _is_link(row: Row) -> bool:
    """Whether the channel belongs to a federation link of the broker, which protects messages by other means."""
    details = row.get("connection_details") or {}
    return "<" in str(row["name"]) or details.get("peer_host") in ("undefined", None)


W, H, E = Severity.WARNING, Severity.HINT, Severity.ERROR
CHECKS: Final = (
    Check(
        "publish-without-confirms", W, "Publishers without confirms",
        "Messages in a socket or in the broker's memory are lost when something fails, and the publisher is not "
        "informed.",
        "Call confirm_select on the channel, publish a batch, then wait for its confirms: "
        "`channel.confirm_select(); channel.publish(...); channel.wait_for_confirms()`",
        without_confirms, ("channels", "statistics"),
    ),
    Check(
        "unroutable-dropped", W, "Messages that reach no queue are dropped",
        "No binding matched, they were not published as mandatory, and their exchange has no alternate exchange: "
        "the broker drops them silently.",
        "Publish with mandatory=True and handle returned messages, or collect them with an alternate exchange: `ctl "
        "set_policy -p VHOST --apply-to exchanges unroutable '^NAME-OF-EXCHANGE$' "
        "'{\"alternate-exchange\": \"unroutable\"}'`",
        unroutable, ("vhosts", "channels", "statistics"),
    ),
    Check(
        "connection-churn", W, "Connections are opened too often",
        "Each connection costs several round trips and a login. Frequent reconnects keep the broker busy, and "
        "sockets run out (TIME_WAIT).",
        "Open one connection per process and keep it; for PHP or short-lived scripts use AMQProxy or a connection pool",
        connection_churn, ("overview", "statistics"), True,
    ),
    Check(
        "channel-churn", W, "Channels are opened too often",
        "A channel per publish costs a round trip before and after each message, and rules out batches of confirms.",
        "Keep one channel per publishing thread, and reopen it only after an error",
        channel_churn, ("overview", "statistics"), True,
    ),
    Check(
        "queue-per-request", W, "One reply queue per request",
        "Declaring and deleting a queue costs more than the request itself, and much more on a cluster.",
        "Use direct reply-to: consume `amq.rabbitmq.reply-to` without acknowledgements on the publishing channel "
        "and set reply_to to this name; with leveret's client `connection.rpc().call(body, routing_key=...)`",
        queue_churn, ("overview", "queues", "statistics"), True,
    ),
    Check(
        "many-channels", H, "Connections with too many channels",
        "Each channel takes memory on both sides. A growing number is a leak, and fails at channel_max.",
        "Close unused channels; use one per thread, not one per message",
        many_channels, ("connections", "statistics"),
    ),
    Check(
        "connection-blocked", W, "Publishers are blocked by the broker",
        "Because of an alarm (memory, disk) or flow control, the broker does not read from them: publishing "
        "applications hang.",
        "See `ctl list_connections name state` and fix the cause of the alarm; consume faster, or publish more slowly",
        blocked, ("connections", "statistics"),
    ),
    Check(
        "no-heartbeat", H, "Connections without heartbeats",
        "The broker may take hours to notice a vanished client, whose exclusive queues, consumers and "
        "unacknowledged messages stay until then.",
        "Set a heartbeat of 10 to 60 s in the client: `amqp://host/vhost?heartbeat=30`",
        without_heartbeat, ("connections", "statistics"),
    ),
)  # fmt: skip
