"""A connection as RabbitMQ's HTTP API shows it."""

from __future__ import annotations

from typing import Final

from leveret.broker.access.security import Security
from leveret.broker.link_peer import LinkPeer
from leveret.broker.peer import Peer
from leveret.control.node import BrokerNode
from leveret.control.pid import pid_of
from leveret.control.tables import plain_table, sayable
from leveret.control.views.rates import OCTETS, rates, with_rates
from leveret.control.views.view import View
from leveret.session import lifecycle

NOBODY: Final = "none"
"""RabbitMQ's user name for a connection without a user."""


def is_open(peer: Peer) -> bool:
    """Return whether the connection has logged in and is not closed; RabbitMQ's API does not show others."""
    return lifecycle.RUNNING <= peer.state < lifecycle.DRAINING


def connection_view(node: BrokerNode, peer: Peer) -> View:
    """Return an item of list_connections."""
    return _direct(node, peer) if isinstance(peer, LinkPeer) else _network(node, peer)


def _network(node: BrokerNode, peer: Peer) -> View:
    host, _, port = peer.name.rpartition(" -> ")[2].rpartition(":")
    peer_host, _, peer_port = peer.address.rpartition(":")
    octets = peer.octets
    values = octets.values()
    view = _common(node, peer) | {
        "user": peer.user,
        "user_who_performed_action": peer.user,
        "type": "network",
        "protocol": "AMQP 0-9-1",
        "host": host,
        "port": int(port) if port else 0,
        "peer_host": peer_host,
        "peer_port": int(peer_port) if peer_port else 0,
        "auth_mechanism": peer.mechanism,
        "channel_max": peer.channel_max,
        "frame_max": int(peer.frame_max),
        "timeout": peer.heartbeat_s,
        "recv_cnt": int(octets.reads),
        "send_cnt": int(octets.writes),
        "send_pend": node.host.unsent_octets(peer),
    }
    view |= with_rates(OCTETS, values, rates(octets, node.host.now_us(), values))
    return view | _tls(peer.security)


def _direct(node: BrokerNode, peer: LinkPeer) -> View:
    """Return the view of a link's own connection; as in RabbitMQ, without addresses, octets and user."""
    nobody = {"user": NOBODY, "user_who_performed_action": NOBODY}
    return _common(node, peer) | nobody | {"type": "direct", "protocol": "Direct 0-9-1"}


def _common(node: BrokerNode, peer: Peer) -> View:
    view: View = {
        "pid": pid_of(node, peer.number),
        "name": peer.name,
        "vhost": peer.vhost.name,
        "node": node.name,
        "state": _state(peer),
        "connected_at": int(node.broker.timeline.wall_us(peer.connected_us)) // 1000,
        "channels": len(peer.channels),
        "client_properties": plain_table(peer.client_properties),
    }
    provided = peer.client_properties.get("connection_name")
    if isinstance(provided, str):
        view["user_provided_name"] = sayable(provided)
    return view


def connection_details(node: BrokerNode, peer: Peer) -> View:
    """Return the item of list_connections for get_connection, where RabbitMQ has "" instead of null."""
    return {key: "" if value is None else value for key, value in connection_view(node, peer).items()}


def _tls(security: Security | None) -> View:
    """Return the properties of the TLS connection."""
    return {
        "ssl": security is not None,
        "ssl_protocol": security and security.protocol,
        "ssl_key_exchange": security and security.key_exchange,
        "ssl_cipher": security and security.cipher,
        "ssl_hash": security and security.hash,
        "peer_cert_subject": security and security.subject,
        "peer_cert_issuer": security and security.issuer,
        "peer_cert_validity": security and security.validity,
    }


def peer_details(peer: Peer) -> View:
    """Return the fields that identify a connection."""
    if isinstance(peer, LinkPeer):
        return {"name": peer.name, "peer_host": "undefined", "peer_port": "undefined"}
    host, _, port = peer.address.rpartition(":")
    return {"name": peer.name, "peer_host": host, "peer_port": int(port) if port else 0}


def _state(peer: Peer) -> str:
    if peer.state == lifecycle.CLOSING:
        return "closing"
    return "blocked" if peer.is_blocked else "running"
