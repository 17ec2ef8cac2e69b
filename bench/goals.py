"""Which figures of each scenario are shown, their goals, and LavinMQ's figures, which no package lets us measure
again."""

from typing import NamedTuple

RELAY, BARE = "relay", "disk, overwrite"


class Goal(NamedTuple):
    """A goal for a figure of a broker: at least the bound if more is better, else at most."""

    bound: float
    of: str = "rabbitmq"  # the bound is a multiple of this broker's figure; "": it is absolute
    broker: str = "leveret"
    is_added: bool = False  # the bound is added to the other broker's figure instead


class Figure(NamedTuple):
    """A line of the tables: a figure of a scenario, its path in the measurements, and its goals."""

    scenario: str
    path: str
    unit: str
    goals: tuple[Goal, ...] = ()
    is_less_better: bool = False


def figure(scenario: str, path: str, unit: str, *goals: Goal) -> Figure:
    return Figure(scenario, path, unit, goals)


def cost(scenario: str, path: str, unit: str, *goals: Goal) -> Figure:
    """Return a figure of which less is better."""
    return Figure(scenario, path, unit, goals, is_less_better=True)


PER_S, P50, P99 = "delivered_per_s", "latency_us.p50", "latency_us.p99"
CONFIRM_P50, CONFIRM_P99 = "confirm_latency_us.p50", "confirm_latency_us.p99"
RATE, MEDIAN, HIGH = "messages/s", "p50, µs", "p99, µs"

SECTIONS = {
    "Transient messages": (
        figure("t16", PER_S, RATE, Goal(35), Goal(5, broker="leveret-interpreted")),
        figure("t1024", PER_S, RATE, Goal(14)),
        figure("t64k", PER_S, RATE, Goal(1.4), Goal(0.9, RELAY)),
        figure("t16-batch1", PER_S, RATE, Goal(2.3), Goal(0.95, RELAY)),
        figure("t16-ack", PER_S, RATE, Goal(10)),
        cost("t16-ack", P50, MEDIAN, Goal(5000, "")),
        cost("t16-ack", P99, HIGH),
        figure("t16-4x4", PER_S, RATE, Goal(35)),
        figure("mixed", PER_S, RATE, Goal(14)),
        cost("rate10k", P50, MEDIAN, Goal(0.6)),
        cost("rate10k", P99, HIGH, Goal(0.3)),
        figure("fanout10", PER_S, "deliveries/s", Goal(25)),
        figure("topic10", PER_S, "deliveries/s", Goal(60)),
    ),
    "Durable messages": (
        figure("p16-c100", PER_S, RATE, Goal(7)),
        figure("p16-c1000", PER_S, RATE, Goal(24)),
        figure("p1024-c1000", PER_S, RATE, Goal(9)),
        figure("mixed-c1000", PER_S, RATE, Goal(10)),
        figure("store-c1000", "published_per_s", RATE, Goal(20)),
        cost("confirm-1", CONFIRM_P50, MEDIAN, Goal(0.4), Goal(60, BARE, is_added=True)),
        cost("confirm-1", CONFIRM_P99, HIGH, Goal(0.17)),
    ),
    "Requests and replies": (
        cost("rpc-1", P50, MEDIAN, Goal(0.35)),
        cost("rpc-1", P99, HIGH),
        figure("rpc-50", "round_trips_per_s", "round trips/s", Goal(9)),
        figure("rpc-q-50", "round_trips_per_s", "round trips/s"),
        figure("rpc-qpr", "round_trips_per_s", "round trips/s", Goal(12)),
    ),
    "Delays": (
        cost("delay", "lateness_ms.p50", "late at p50, ms", Goal(1.5, "")),
        cost("delay", "lateness_ms.p99", "late at p99, ms", Goal(8, "")),
        cost("delay", "early", "early", Goal(0, "")),
        cost("delay", "broker_cpu_us_per_msg", "CPU µs", Goal(50, "")),
    ),
    "Backlogs": (
        figure("backlog", "published_per_s", "published/s", Goal(20)),
        figure("backlog", "drained_per_s", "drained/s"),
        cost("backlog", "bytes_per_message", "bytes of memory each", Goal(16, "")),
        figure("backlog-10M", "published_per_s", "published/s"),
        figure("backlog-10M", "drained_per_s", "drained/s"),
        cost("backlog-10M", "bytes_per_message", "bytes of memory each", Goal(16, "")),
    ),
    "Connections, start, memory": (
        figure("connections", "opened_per_s", "opened/s", Goal(5.5)),
        cost("connections", "kib_per_connection", "KiB each", Goal(20, "")),
        figure("connections-10k", "opened_per_s", "opened/s", Goal(5.5)),
        cost("connections-10k", "kib_per_connection", "KiB each", Goal(20, "")),
        cost("start", "start_s", "s until ready", Goal(0.25, "")),
        cost("start", "rss_mib", "MiB when idle", Goal(35, "")),
    ),
    "Streams": (
        figure("append-16", "confirmed_per_s", "confirmed/s"),
        figure("append-mixed", "confirmed_per_s", "confirmed/s"),
        figure("replay-16", "replayed_per_s", "read/s"),
        figure("replay-mixed", "replayed_per_s", "read/s"),
    ),
    "Federation": (figure("federation", PER_S, RATE, Goal(8)),),
}

LAVINMQ = {
    ("t16", PER_S): 7.90,
    ("t1024", PER_S): 3.46,
    ("t64k", PER_S): 0.29,
    ("t16-batch1", PER_S): 2.42,
    ("t16-ack", PER_S): 6.18,
    ("t16-ack", P50): 73.8,
    ("t16-ack", P99): 51.9,
    ("t16-4x4", PER_S): 8.08,
    ("rate10k", P50): 0.68,
    ("rate10k", P99): 0.58,
    ("fanout10", PER_S): 11.85,
    ("topic10", PER_S): 37,
    ("p16-c100", PER_S): 5.80,
    ("p16-c1000", PER_S): 11.58,
    ("p1024-c1000", PER_S): 5.74,
    ("store-c1000", "published_per_s"): 8.73,
    ("confirm-1", CONFIRM_P50): 0.48,
    ("confirm-1", CONFIRM_P99): 0.18,
    ("rpc-1", P50): 0.37,
    ("rpc-1", P99): 0.54,
    ("rpc-50", "round_trips_per_s"): 5.40,
    ("rpc-q-50", "round_trips_per_s"): 5.05,
    ("rpc-qpr", "round_trips_per_s"): 0.07,
    ("backlog", "published_per_s"): 16.02,
    ("backlog", "drained_per_s"): 25.5,
    ("backlog", "bytes_per_message"): 0.0062,
    ("connections", "opened_per_s"): 5.0,
}
"""LavinMQ 2.9.1 (release build) as a multiple of the same RabbitMQ 3.10.8, measured alternately in another run, on
another day, on the same kind of machine (two cores, same load generator, three rounds of 5 s, medians). Its delayed
messages arrived up to 100 ms early (3,610 of 5,000), so its lateness is not comparable. "store-c1000" had 100,000
messages there."""
