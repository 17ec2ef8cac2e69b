"""Erlang-style process ids of connections and channels, for scripts that pass them back to the broker."""

from __future__ import annotations

from leveret.control.node import BrokerNode


def pid_of(node: BrokerNode, connection: int, channel: int = 0) -> str:
    """Return <NODE.START.CONNECTION.CHANNEL>: START in seconds; channel 0 is the connection itself."""
    return f"<{node.name}.{node.host.started_us // 1_000_000}.{connection}.{channel}>"
