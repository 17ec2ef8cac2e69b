"""Commands that close connections. The client receives 320 CONNECTION_FORCED with the reason."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from leveret.broker.peer import Peer
from leveret.control.command import Command
from leveret.control.node import BrokerNode
from leveret.control.pid import pid_of
from leveret.control.refusal import not_found

REASON = "Closed via management plugin"


class CloseConnection(Command):
    """Close the connection of this name or process id."""

    name: str
    reason: str = REASON

    def run(self, node: BrokerNode) -> object:
        for peer in node.host.peers():
            if self.name in (peer.name, pid_of(node, peer.number)):
                node.host.close(peer, self.reason)
                return None
        raise not_found(f"no connection '{self.name}'")


class CloseAllConnections(Command):
    """Close the connections to a virtual host, or all of them, oldest first; answers how many."""

    vhost: str | None = None
    limit: int = 0  # the most to close, 0 = no limit
    reason: str = REASON

    def run(self, node: BrokerNode) -> object:
        peers = (peer for peer in node.host.peers() if self.vhost is None or peer.vhost.name == self.vhost)
        return _close(node, islice(peers, self.limit or None), self.reason)


class CloseAllUserConnections(Command):
    """Close all connections of a user; answers how many."""

    user: str
    reason: str = REASON

    def run(self, node: BrokerNode) -> object:
        return _close(node, (peer for peer in node.host.peers() if peer.user == self.user), self.reason)


def _close(node: BrokerNode, peers: Iterable[Peer], reason: str) -> dict[str, int]:
    count = 0
    for peer in peers:
        node.host.close(peer, reason)
        count += 1
    return {"count": count}
