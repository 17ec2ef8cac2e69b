"""The queues and exchanges of simulated clients: two delay levels, dead letters, and ways in which these can fail."""

from __future__ import annotations

from leveret.store.format import DATA_START

_MAIN = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
# name -> (durable, arguments)
QUEUES: dict[str, tuple[bool, dict[str, str | int]]] = {
    "level1": (True, {"x-message-ttl": 2003, "x-dead-letter-exchange": "down"}),
    "level0": (True, {"x-message-ttl": 1009, "x-dead-letter-exchange": "out"}),
    "work": (True, _MAIN),
    "dead": (True, {}),
    "plain": (True, {}),
    "sure": (True, {"x-queue-type": "quorum", **_MAIN}),
    "ranked": (True, {"x-max-priority": 2, **_MAIN}),
    "brief": (False, {"x-message-ttl": 503, **_MAIN}),
    "lost": (True, {"x-message-ttl": 307, "x-dead-letter-exchange": "missing"}),
    "log": (True, {
        "x-queue-type": "stream", "x-stream-max-segment-size-bytes": DATA_START + 300,
        "x-max-length-bytes": 2 * (DATA_START + 300),
    }),
    "tape": (True, {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": DATA_START + 20_000}),
    "round": (True, {"x-message-ttl": 701, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "round"}),
}
# queues that count deliveries
QUORUM = frozenset({"sure"})
STREAMS = frozenset({"log", "tape"})
# queues that keep transient messages, too
KEEPING = QUORUM | STREAMS
EXCHANGES: dict[str, bool] = {"in": True, "down": True, "out": True, "fleeting": False}
BINDINGS = [
    ("in", "slow", "level1"), ("in", "fast", "level0"), ("in", "all", "work"), ("in", "all", "plain"),
    ("in", "all", "level0"), ("in", "all", "ranked"), ("in", "all", "sure"), ("down", "slow", "level0"),
    ("in", "all", "log"), ("down", "slow", "log"), ("out", "fast", "tape"),
    ("out", "slow", "work"), ("out", "fast", "work"), ("out", "all", "work"), ("fleeting", "all", "plain"),
]  # fmt: skip


def priority_of(id: int) -> int:
    """Return the priority of the message with this id: equal for several in a row, which may form a message batch."""
    return id // 4 % 5
