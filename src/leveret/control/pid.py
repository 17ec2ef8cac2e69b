"""Names of connections and channels in the form of Erlang's process ids, for scripts that hand them back to us."""

from __future__ import annotations

from leveret.control.node import Node


def pid_of(node: Node, connection: int, channel: int = 0) -> str:
    """<NODE.START.CONNECTION.CHANNEL>: the start of the node in seconds, the connection's number, 0 = no channel."""
    return f"<{node.name}.{node.host.started_us // 1_000_000}.{connection}.{channel}>"
