"""Checks of exchanges, alternate exchanges and dead letters: messages that are lost or end in the wrong place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from leveret.cli.doctor.check import Check, Hit, Severity
from leveret.cli.doctor.checks.naming import is_brokers_own, level_of, object_hit
from leveret.cli.doctor.observation import Key, Observation, Row, count, dead_letter_way, queue_key, setting
from leveret.cli.terminal import counted


def unbound(seen: Observation) -> Iterator[Hit]:
    inner = {
        (row["vhost"], row["destination"]) for row in seen.rows("bindings") if row["destination_type"] == "exchange"
    }
    for key, exchange in seen.exchanges.items():
        if (
            is_brokers_own(exchange["name"])
            or exchange.get("internal")
            or seen.bound[key]
            or _alternate(seen, exchange)
        ):
            continue
        published = count(exchange, "message_stats.publish_in")
        if published:
            yield object_hit(
                "exchange", exchange, f"it has no bindings, and {counted(published, 'message')} published to it"
            )
        elif key not in inner:  # an exchange behind other exchanges usually gets its bindings later
            yield object_hit(
                "exchange",
                exchange,
                "it has no bindings; nothing was published to it since the broker started",
                Severity.HINT,
            )


def no_dead_letter_exchange(seen: Observation) -> Iterator[Hit]:
    for queue in seen.rows("queues"):
        way = dead_letter_way(queue)
        if way is not None and way[0] and (queue["vhost"], way[0]) not in seen.exchanges:
            yield object_hit(
                "queue",
                queue,
                f"its dead letters go to exchange {way[0]!r}, which does not exist; "
                f"{counted(count(queue, 'messages'), 'message')} in it now",
                EXCHANGE=way[0],
            )


def dead_letters_lost(seen: Observation) -> Iterator[Hit]:
    for queue in seen.rows("queues"):
        way = dead_letter_way(queue)
        if way is None or (way[0] and (queue["vhost"], way[0]) not in seen.exchanges):
            continue
        exchange, key = way
        if (exchange == "" and key is None) or level_of(queue["name"]):
            continue  # each dead letter keeps its own key, which is unknown; delay levels have their own check
        target = seen.exchanges.get((queue["vhost"], exchange), {})
        if _alternate(seen, target) or seen.destinations(queue["vhost"], exchange, key):
            continue
        with_key = "" if key is None else f" with routing key {key!r}"
        yield object_hit(
            "queue",
            queue,
            f"no queue receives messages sent to exchange {exchange!r}{with_key}; "
            f"{counted(count(queue, 'messages'), 'message')} in it now",
            EXCHANGE=exchange,
        )


def dead_letter_cycle(seen: Observation) -> Iterator[Hit]:
    told: set[frozenset[Key]] = set()
    for start in seen.queues:
        way = _circle(seen, start)
        if way and frozenset(way) not in told:
            told.add(frozenset(way))
            names = " -> ".join(repr(name) for _, name in [*way, start])
            yield object_hit("queue", seen.queues[start], f"expired messages cycle: {names}")


def alternate(seen: Observation) -> Iterator[Hit]:
    for exchange in seen.rows("exchanges"):
        name = _alternate(seen, exchange)
        if name is None:
            continue
        key = (exchange["vhost"], name)
        if key not in seen.exchanges:
            yield object_hit("exchange", exchange, f"its alternate exchange {name!r} does not exist", EXCHANGE=name)
        elif not seen.bound[key] and _alternate(seen, seen.exchanges[key]) is None and name:
            yield object_hit(
                "exchange",
                exchange,
                f"its alternate exchange {name!r} has no bindings",
                Severity.WARNING,
                EXCHANGE=name,
            )


def _alternate(seen: Observation, exchange: Row) -> str | None:
    given = (exchange.get("arguments") or {}).get("alternate-exchange")
    if given is None and exchange:
        given = seen.exchange_policies.get(queue_key(exchange), {}).get("alternate-exchange")
    return None if given is None else str(given)


def _circle(seen: Observation, start: Key) -> list[Key]:
    """Return a cycle of queues through which an expired message comes back to `start`, or [].

    Only certain routes count: those by a fanout exchange, or with a fixed routing key.
    """
    way, seen_keys = [start], {start}
    while True:
        queue = seen.queues[way[-1]]
        letters = dead_letter_way(queue)
        if letters is None or setting(queue, "message-ttl") is None:
            return []
        exchange, key = letters
        kind = seen.exchanges.get((queue["vhost"], exchange), {}).get("type", "direct")
        if key is None and kind != "fanout":
            return []
        targets = seen.destinations(queue["vhost"], exchange, key)
        if start in targets:
            return way
        onward = sorted(
            target for target in targets - seen_keys if dead_letter_way(seen.queues.get(target, {})) is not None
        )
        if not onward:
            return []
        way.append(onward[0])
        seen_keys.add(onward[0])


W, H, E = Severity.WARNING, Severity.HINT, Severity.ERROR
CHECKS: Final = (
    Check(
        "exchange-unbound", W, "Exchanges without bindings",
        "Messages published to them reach no queue and are dropped.",
        "Bind a queue, `channel.bind_queue('queue', 'NAME', 'key')`, or delete it, `channel.delete_exchange('NAME')`",
        unbound, ("exchanges", "bindings", "policies"),
    ),
    Check(
        "dead-letter-exchange-missing", E, "Dead letter exchanges that do not exist",
        "Rejected, expired and displaced messages are lost, although they were meant to be kept.",
        "Declare it and bind a queue: `channel.declare_exchange('EXCHANGE', 'fanout'); channel.bind_queue('dead', "
        "EXCHANGE)`",
        no_dead_letter_exchange, ("queues", "exchanges"),
    ),
    Check(
        "dead-letters-lost", E, "Dead letters that reach no queue",
        "The dead letter exchange exists but routes to no queue: the messages are lost, although they were meant to "
        "be kept.",
        "Bind a queue to it: `channel.declare_queue('dead'); channel.bind_queue('dead', 'EXCHANGE', '#')`",
        dead_letters_lost, ("queues", "exchanges", "bindings", "policies"),
    ),
    Check(
        "dead-letter-cycle", E, "Expired messages that move in a cycle",
        "Each queue of the cycle dead-letters expired messages to the next. The broker silently drops a message "
        "that returns to a queue where it has already expired.",
        "Break the cycle: change the dead letter exchange of one queue. (A retry loop in which a consumer rejects "
        "the message is not a cycle)",
        dead_letter_cycle, ("queues", "exchanges", "bindings"),
    ),
    Check(
        "alternate-exchange", E, "Alternate exchanges that do not exist or have no bindings",
        "They were meant to collect unroutable messages, which are dropped nevertheless.",
        "Declare it and bind a queue: `channel.declare_exchange('EXCHANGE', 'fanout'); "
        "channel.bind_queue('unroutable', 'EXCHANGE')`",
        alternate, ("exchanges", "bindings", "policies"),
    ),
)  # fmt: skip
