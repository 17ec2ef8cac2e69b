"""The broker that a suite runs against: on ports of its own, with an empty data directory."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from leveret.testing.processes import LeveretProcess, RabbitMQProcess, ServerProcess, free_port

from .redis import RedisProcess
from .switch import switch

__all__ = ["LEVERET", "OFFERS", "RABBITMQ", "Broker", "running"]

LEVERET: Final = "leveret"
RABBITMQ: Final = "rabbitmq"
OFFERS: Final[Mapping[str, frozenset[str]]] = dict.fromkeys((LEVERET, RABBITMQ), frozenset({"tls", "http"}))
"""What each broker offers besides plain AMQP."""
SERVICES: Final[Mapping[str, type[ServerProcess]]] = {"redis": RedisProcess}
"""Servers that a suite may need besides the broker, by their names in suites.toml."""


@dataclass(frozen=True)
class Broker:
    """A running broker.

    Attributes:
        server: Its process.
        ports: Protocol -> port: "port" for AMQP, "tls_port", "http_port", "switch_port", "redis_port".
    """

    server: ServerProcess
    ports: Mapping[str, int]

    @property
    def complaints(self) -> str:
        """Return the broker's output if it contains a traceback, which no client may cause; otherwise ""."""
        return self.server.output if "Traceback" in self.server.output else ""


@contextmanager
def running(kind: str, services: Sequence[str], certificates: Path) -> Iterator[Broker]:
    """Start a broker and the other servers; stop all at the end.

    Args:
        kind: LEVERET or RABBITMQ. The latter is a private node with TLS and the management plugin.
        services: Names of other servers, see SERVICES.
        certificates: A directory with ca.pem, server.pem and server.key.
    """
    tls_port, http_port, switch_port = free_port(), free_port(), free_port()
    server: ServerProcess
    if kind == LEVERET:
        # client certificates are accepted, but not required
        server = LeveretProcess(
            admin=True,
            arguments=[
                f"--tls-port={tls_port}",
                f"--tls-cert={certificates / 'server.pem'}",
                f"--tls-key={certificates / 'server.key'}",
                f"--tls-ca={certificates / 'ca.pem'}",
            ],
        )
        http_port = server.admin_port
    else:
        settings = [
            f"listeners.ssl.default = 127.0.0.1:{tls_port}",
            f"ssl_options.cacertfile = {certificates / 'ca.pem'}",
            f"ssl_options.certfile = {certificates / 'server.pem'}",
            f"ssl_options.keyfile = {certificates / 'server.key'}",
            "ssl_options.verify = verify_peer",
            "ssl_options.fail_if_no_peer_cert = false",
            "management.tcp.ip = 127.0.0.1",
            f"management.tcp.port = {http_port}",
        ]
        server = RabbitMQProcess(plugins=["rabbitmq_management"], settings="\n".join(settings))
    with ExitStack() as stack:
        ports = {"port": server.port, "tls_port": tls_port, "http_port": http_port, "switch_port": switch_port}
        for name in services:
            ports[f"{name}_port"] = stack.enter_context(SERVICES[name]()).port
        stack.enter_context(server)
        stack.enter_context(switch(server, switch_port))
        yield Broker(server, ports)
