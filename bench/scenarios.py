"""The scenarios: the arguments of amqpload, and which figure of its JSON output counts."""

from typing import NamedTuple


class Scenario(NamedTuple):
    arguments: str
    figure: str  # path of the main figure in amqpload's JSON
    meaning: str
    lower_is_better: bool = False
    relayed: bool = False  # whether bench/relay.c, which only copies, can be measured, too
    is_fresh: bool = False  # needs a broker that has just been started, because its memory is measured
    patience_s: float = 40  # the most time besides the measuring window

    @property
    def is_durable(self) -> bool:
        """Return whether it measures confirms of a durable queue, for which the kind of queue matters."""
        return "-durable" in self.arguments or self.arguments.startswith("confirm-latency")


PER_S = "delivered_per_s"
DURABLE = "-durable -persistent -prefetch 500 -ack-every 50"
# durable runs use another exchange: a broker keeps declarations, and to redeclare an exchange as durable fails
MIXED = "throughput -mixed -exchange amqpload-mixed"
KEYS = "-type topic -key #"

SCENARIOS = {
    "t16": Scenario("throughput -size 16", PER_S, "16 bytes, transient, auto-ack", relayed=True),
    "t1024": Scenario("throughput -size 1024", PER_S, "1 KiB, transient, auto-ack", relayed=True),
    "t64k": Scenario("throughput -size 65536", PER_S, "64 KiB, transient, auto-ack", relayed=True),
    "t16-batch1": Scenario("throughput -size 16 -batch 1", PER_S, "t16, one system call per publish", relayed=True),
    "t16-ack": Scenario(
        "throughput -size 16 -prefetch 200 -confirm 1000", PER_S, "each message acked, 1,000 unconfirmed, transient"
    ),
    "t16-4x4": Scenario("throughput -size 16 -producers 4 -consumers 4 -queues 4", PER_S, "four queues at a time"),
    "rate10k": Scenario(
        "throughput -size 16 -rate 10000",
        "latency_us.p50",
        "latency in µs at 10,000/s",
        lower_is_better=True,
        relayed=True,
    ),
    "fanout10": Scenario("fanout -size 16 -queues 10", PER_S, "a fanout exchange with ten queues"),
    "topic10": Scenario(
        "topic -size 16 -queues 10 -bindings 10", PER_S, "100 wildcard bindings, 1,024 keys, 3.6 copies per message"
    ),
    "p16-c100": Scenario(f"throughput -size 16 {DURABLE} -confirm 100", PER_S, "durable, persistent, 100 unconfirmed"),
    "p16-c1000": Scenario(
        f"throughput -size 16 {DURABLE} -confirm 1000", PER_S, "durable, persistent, 1,000 unconfirmed"
    ),
    "p1024-c1000": Scenario(f"throughput -size 1024 {DURABLE} -confirm 1000", PER_S, "the same with 1 KiB"),
    "mixed": Scenario(f"{MIXED} {KEYS}", PER_S, "1,000 keys, ids, headers, 50 B to 5 KiB; transient, auto-ack"),
    "mixed-c1000": Scenario(
        f"{MIXED}-durable {KEYS} {DURABLE} -confirm 1000", PER_S, "the same, durable, persistent, 1,000 unconfirmed"
    ),
    "store-c1000": Scenario(
        "publish-only -size 16 -durable -persistent -confirm 1000 -count 300000",
        "published_per_s",
        "300,000 persistent messages, no consumer",
        patience_s=90,
    ),
    "confirm-1": Scenario(
        "confirm-latency -size 16",
        "confirm_latency_us.p50",
        "one persistent message at a time, µs",
        lower_is_better=True,
    ),
    "rpc-1": Scenario("rpc -mode direct -window 1", "round_trips_per_s", "direct reply-to, 1 outstanding"),
    "rpc-50": Scenario("rpc -mode direct -window 50", "round_trips_per_s", "direct reply-to, 50 outstanding"),
    "rpc-q-50": Scenario("rpc -mode queue -window 50", "round_trips_per_s", "a reply queue per client, 50 outstanding"),
    "rpc-qpr": Scenario("rpc -mode queue-per-request", "round_trips_per_s", "a reply queue per request"),
    "backlog": Scenario(
        "publish-only -size 16 -count 1000000 -settle 1",
        "published_per_s",
        "1,000,000 transient messages, no consumer",
        is_fresh=True,
        patience_s=120,
    ),
    "backlog-10M": Scenario(
        "publish-only -size 16 -count 10000000 -settle 1",
        "published_per_s",
        "10,000,000 transient messages, no consumer",
        is_fresh=True,
        patience_s=120,
    ),
    "delay": Scenario(
        "delay -count 5000 -min-delay 0 -max-delay 7 -rate 1000",
        "lateness_ms.p50",
        "5,000 messages delayed by 0 to 7 s: lateness in ms",
        lower_is_better=True,
    ),
    "connections": Scenario(
        "connections -count 1000", "opened_per_s", "1,000 connections with a channel each", is_fresh=True
    ),
    "connections-10k": Scenario(
        "connections -count 10000",
        "opened_per_s",
        "10,000 connections with a channel each",
        is_fresh=True,
        patience_s=120,
    ),
}
QUICK = ("t16", "p16-c1000", "rpc-50", "mixed", "mixed-c1000")

DETAILS = (
    "slowest_per_s",
    "slow_per_s",
    "latency_us.p50",
    "latency_us.p99",
    "confirm_latency_us.p50",
    "confirm_latency_us.p99",
    "lateness_ms.p99",
    "drained_per_s",
    "bytes_per_message",
    "kib_per_connection",
    "broker_cpu_share",
    "client_cpu_share",
)
"""Additional figures for the tables, if amqpload prints them."""

CPU = ("broker_cpu_us_per_msg", "broker_cpu_us_per_connection")
"""Processor time of the broker with its descendants."""

FAULTS = (
    "lost",
    "out_of_order",
    "unconfirmed",
    "nacked",
    "bad_confirms",
    "mismatches",
    "unanswered",
    "duplicates",
    "early",
    "failed",
)
"""Counters that must be 0."""

NO_TTL = "has no message TTL, on which delays are built"
NO_REPLY_TO = "has no direct reply-to"
SKIPPED = {
    ("rpc-1", "garagemq"): NO_REPLY_TO,
    ("rpc-50", "garagemq"): NO_REPLY_TO,
    ("delay", "garagemq"): NO_TTL,
    ("backlog-10M", "garagemq"): "often ends at 1 million already, without an answer",
    ("backlog-10M", "rabbitmq"): "takes 2.6 KiB of memory for each of a million; ten million have no room here",
}
"""Combinations of scenario and broker that are not measured, and why."""
