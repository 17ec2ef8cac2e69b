"""A pytest plugin that directs a client's own tests to the broker under test; loaded with ``-p broker_target``.

Several suites have the standard ports, or a container engine, built in. The variables BROKER_5672, BROKER_5671,
BROKER_15672 and BROKER_15671 say where on 127.0.0.1 each of these ports really is; no connection leaves this machine.
BROKER_SELECT and BROKER_DESELECT are lists of test names, one a line, in which ``*`` matches anything.
"""

import os
import re
import socket
import urllib.request
from types import SimpleNamespace
from typing import Any

import pytest

HOST = "127.0.0.1"
HERE = {HOST, "localhost", "::1"}
PORTS = {port: int(os.environ.get(f"BROKER_{port}", port)) for port in (5672, 5671, 15672, 15671)}
BROKER = SimpleNamespace(id="broker", host=HOST, ports={f"{port}/tcp": mapped for port, mapped in PORTS.items()})


def switch(position: str) -> None:
    """Start ("start") or end ("stop", "kill") the broker under test, unless that is its state already."""
    port = os.environ["BROKER_SWITCH"]
    urllib.request.urlopen(urllib.request.Request(f"http://{HOST}:{port}/{position}", method="POST")).close()


class Containers:
    """Replaces the container engine of aio-pika's suite: every broker that it starts is the one under test."""

    def __init__(self, *_: object) -> None:
        pass

    def run(self, *_: object, **__: object) -> SimpleNamespace:
        return BROKER

    def kill(self, _: object) -> None:
        switch("kill")

    def start(self, _: object) -> None:
        switch("start")

    remove = start  # the next test needs it

    def inspect(self, _: object) -> None:
        pass

    def _parse_ports(self, _: object) -> dict[str, int]:
        return dict(BROKER.ports)

    def _request(self, _: str, __: str, body: Any = None) -> dict[str, Any]:
        """Run ``rabbitmqctl stop_app`` or ``start_app``; it is done on return."""
        if isinstance(body, dict) and "Cmd" in body:
            switch(body["Cmd"][1].removesuffix("_app"))
        return {"Id": "", "Running": False, "ExitCode": 0}


try:
    from tests import docker_client  # type: ignore[attr-defined]  # aio-pika's
except ImportError:
    pass
else:
    docker_client.check_docker_available = lambda: None
    docker_client.DockerClient = Containers


@pytest.fixture(scope="session")
def rabbitmq_container() -> SimpleNamespace:
    """A fixture of aiormq's suite that its package does not contain."""
    return BROKER


@pytest.fixture(scope="session")
def amqp_direct_url() -> Any:
    """Another such fixture: the URL of the plain listener."""
    from yarl import URL

    return URL.build(scheme="amqp", user="guest", password="guest", host=HOST, port=PORTS[5672], path="//")




_connect = socket.socket.connect


def connect(self: socket.socket, to: Any) -> None:
    """Replace socket.connect, for the clients that open their own sockets."""
    if isinstance(to, tuple):
        host, port, *rest = to
        if host not in HERE:
            raise ConnectionRefusedError(f"{host} is not this machine")
        # the broker listens on IPv4 only; clients try both
        to = to if host == "::1" else (HOST, PORTS.get(port, port), *rest)
    return _connect(self, to)


socket.socket.connect = connect  # type: ignore[assignment,method-assign]


def named(variable: str) -> re.Pattern[str] | None:
    """Return a pattern of the names in an environment variable; None if it has none."""
    names = os.environ.get(variable, "").split("\n")
    patterns = [re.escape(name).replace(r"\*", ".*") for name in names if name]
    return re.compile("|".join(patterns)) if patterns else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect all tests but those asked for."""
    wanted, unwanted = named("BROKER_SELECT"), named("BROKER_DESELECT")
    left = [
        item
        for item in items
        if (wanted is None or wanted.fullmatch(item.nodeid)) and not (unwanted and unwanted.fullmatch(item.nodeid))
    ]
    if len(left) < len(items):
        kept = set(map(id, left))
        config.hook.pytest_deselected(items=[item for item in items if id(item) not in kept])
        items[:] = left
