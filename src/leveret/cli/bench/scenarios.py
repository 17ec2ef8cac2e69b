"""The table of scenarios."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True)
class Scenario:
    """A scenario of the bench.

    Attributes:
        sender, receiver: the roles of its processes; "" for none.
        figure: the figure that ratios compare.
        defaults: values that differ from Job's defaults.
        is_paired: there is one receiver for each sender.
        drains: the receivers start when the senders have finished.
    """

    help: str
    sender: str
    receiver: str
    figure: str
    defaults: dict[str, Any] = field(default_factory=dict)
    is_paired: bool = False
    drains: bool = False


SCENARIOS: Final[dict[str, Scenario]] = {
    "throughput": Scenario("throughput without acknowledgements", "publisher", "consumer", "delivered_per_s"),
    "ack": Scenario("throughput with acknowledgements and confirms", "publisher", "consumer", "delivered_per_s",
                    {"prefetch": 500, "confirm": 1000}),
    "fanout": Scenario("a fanout exchange: each queue gets each message", "publisher", "consumer", "delivered_per_s",
                       {"fanout": True, "queues": 5, "consumers": 5}),
    "latency": Scenario("latency of messages at a given rate", "publisher", "consumer", "latency_us.p50",
                        {"rate": 1000}),
    "confirm": Scenario("latency of the confirm of a persistent message", "publisher", "", "confirm_us.p50",
                        {"confirm": 1, "persistent": True}),
    "backlog": Scenario("publish into queues without consumers, then consume the backlog", "publisher", "consumer",
                        "published_per_s", {"messages": 200_000, "confirm": 1000, "persistent": True}, drains=True),
    "rpc": Scenario("requests and replies over direct reply-to", "requester", "responder", "round_trips_per_s",
                    {"window": 50}, is_paired=True),
    "delay": Scenario("how late or early delayed messages arrive", "delayer", "late_consumer", "late_us.p50",
                      {"rate": 1000}),
}  # fmt: skip
