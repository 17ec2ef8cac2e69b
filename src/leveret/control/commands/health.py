"""Health checks: {"status": "ok", ...} or {"status": "failed", "reason": ...}, word for word as in RabbitMQ 3.10.8.

While the node is under maintenance or stopping, nothing listens for AMQP; RabbitMQ's HTTP API does not answer then. The
last two checks are those of RabbitMQ 4.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from leveret.control.command import Query
from leveret.control.commands.status import alarms_of
from leveret.control.direct import DirectChannel, reply_refusal
from leveret.control.node import BrokerNode
from leveret.control.refusal import bad_request
from leveret.net.connections.listener import Listener
from leveret.wire import grammar
from leveret.wire.errors import ProtocolError
from leveret.wire.properties import Properties, encode_header

ALIVENESS: Final = "aliveness-test"
PING: Final = b"ping"
OK: Final = {"status": "ok"}
SINGLE: Final = {"status": "ok", "reason": "single node cluster"}
DAYS: Final = {"days": 1, "weeks": 7, "months": 30, "years": 365}
DAY_US: Final = 24 * 60 * 60 * 1_000_000
# common names of protocols, and those of the listeners
PROTOCOLS: Final = {
    "amqp091": "amqp", "amqp0.9.1": "amqp", "amqp-0-9-1": "amqp", "amqp0-9-1": "amqp", "amqp10": "amqp",
    "amqp1.0": "amqp", "amqp-1.0": "amqp", "amqps": "amqp/ssl", "amqp091s": "amqp/ssl", "amqp/tls": "amqp/ssl",
}  # fmt: skip


class HealthCheck(Query):
    """A health check of RabbitMQ's HTTP API."""

    check: str  # its name in the path
    argument: str | int | None = None  # the parts of the path after the name
    unit: str | None = None

    def run(self, node: BrokerNode) -> object:
        if self.check not in CHECKS:
            raise bad_request(f"unknown health check {self.check!r}; known checks: {', '.join(CHECKS)}")
        return CHECKS[self.check](self, node)


def _alarms(asked: HealthCheck, node: BrokerNode) -> dict[str, Any]:
    where = "in the cluster" if asked.check == "alarms" else "on the node"
    alarms = [{"node": node.name, "resource": name} for name in alarms_of(node)]
    return _failed(f"There are alarms in effect {where}", alarms=alarms) if alarms else OK


def _expiring(asked: HealthCheck, node: BrokerNode) -> dict[str, Any]:
    if asked.unit not in DAYS:
        raise bad_request("Time unit not recognised. Supported units: days, weeks, months, years.")
    within = _integer(asked.argument)
    if within is None or within < 0:
        raise bad_request("Invalid expiration value.")
    until_us = int(node.broker.timeline.wall_us(node.host.now_us())) + within * DAYS[asked.unit] * DAY_US
    expired = [{"node": node.name, "path": path} for path, end_us in node.host.certificates() if end_us < until_us]
    return _failed("Certificates expiring", expired=expired) if expired else OK


def _port(asked: HealthCheck, node: BrokerNode) -> dict[str, Any]:
    port = _integer(asked.argument)
    if port is None:
        raise bad_request("Invalid port")
    ports = [listener.port for listener in _active(node)]
    return {**OK, "port": port} if port in ports else _failed("No active listener", missing=port, ports=ports)


def _protocol(asked: HealthCheck, node: BrokerNode) -> dict[str, Any]:
    name = str(asked.argument).lower()
    protocol = PROTOCOLS.get(name, name)
    protocols = sorted({listener.protocol for listener in _active(node)})
    if protocol in protocols:
        return {**OK, "protocol": protocol}
    return _failed("No active listener", missing=protocol, protocols=protocols)


def _active(node: BrokerNode) -> list[Listener]:
    """Return the listeners that accept connections."""
    is_open = not _is_leaving(node)
    return [each for each in node.host.listeners if is_open or not each.protocol.startswith("amqp")]


def _is_leaving(node: BrokerNode) -> bool:
    return node.host.shutdown.is_under_maintenance or node.host.is_draining


def _in_service(asked: HealthCheck, node: BrokerNode) -> dict[str, Any]:
    if _is_leaving(node):
        return _failed(f"node {node.name} is in maintenance mode or stopping")
    return OK if node.host.serving.is_set() else _failed(f"node {node.name} is not serving clients yet")


def _integer(argument: str | int | None) -> int | None:
    text = str(argument)
    return int(text) if text.isascii() and text.removeprefix("-").isdecimal() else None


def _failed(reason: str, **more: object) -> dict[str, Any]:
    return {"status": "failed", "reason": reason, **more}


def _fine(asked: HealthCheck, node: BrokerNode) -> dict[str, Any]:
    """Pass: all virtual hosts are up while the broker is."""
    return OK


def _single(asked: HealthCheck, node: BrokerNode) -> dict[str, Any]:
    """Pass: a single node has no other nodes that depend on it."""
    return SINGLE


CHECKS: Final[dict[str, Callable[[HealthCheck, BrokerNode], dict[str, Any]]]] = {
    "alarms": _alarms,
    "local-alarms": _alarms,
    "certificate-expiration": _expiring,
    "port-listener": _port,
    "protocol-listener": _protocol,
    "virtual-hosts": _fine,
    "node-is-mirror-sync-critical": _single,
    "node-is-quorum-critical": _single,
    "is-in-service": _in_service,
    "ready-to-serve-clients": _in_service,
}


class AlivenessTest(Query):
    """Send a message through a queue of its own and take it out. The queue stays, as in RabbitMQ."""

    vhost: str
    user: str | None = None  # whose permissions count, None = an operator's

    def run(self, node: BrokerNode) -> object:
        with DirectChannel(node, self.vhost, self.user) as channel:
            try:
                channel.call(grammar.QUEUE_DECLARE, queue=ALIVENESS)
                channel.publish("", ALIVENESS, encode_header(Properties(), len(PING)), PING)
                answer, _ = channel.call(grammar.BASIC_GET, queue=ALIVENESS, no_ack=True)
            except ProtocolError as error:
                raise reply_refusal(error) from None
        return OK if answer.spec is grammar.BASIC_GET_OK else _failed("the test message did not arrive")
