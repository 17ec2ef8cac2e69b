"""A pytest plugin that aims a client's own tests at the broker under test; loaded with ``-p broker_target``.

Several suites have the standard ports, or a container engine, written into them. The variables BROKER_5672,
BROKER_5671, BROKER_15672 and BROKER_15671 say where on 127.0.0.1 each of these ports really is; no connection leaves
this machine. BROKER_SELECT and BROKER_DESELECT are lists of test names, one a line, in which ``*`` stands for anything.
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
    """Brings the broker under test up ("start") or down ("stop", "kill"), if it is not there already."""
    port = os.environ["BROKER_SWITCH"]
    urllib.request.urlopen(urllib.request.Request(f"http://{HOST}:{port}/{position}", method="POST")).close()


class Containers:
    """Stands in for the container engine of aio-pika's suite: the brokers it starts are all the one under test."""

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
        """``rabbitmqctl stop_app`` and ``start_app``, which are done when this returns."""
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
    """What aiormq's suite asks for, and its package does not contain."""
    return BROKER


@pytest.fixture(scope="session")
def amqp_direct_url() -> Any:
    """Likewise: the URL of the plain listener."""
    from yarl import URL

    return URL.build(scheme="amqp", user="guest", password="guest", host=HOST, port=PORTS[5672], path="//")




_connect = socket.socket.connect


def connect(self: socket.socket, to: Any) -> None:
    """socket.connect, for the clients that open their own sockets."""
    if isinstance(to, tuple):
        host, port, *rest = to
        if host not in HERE:
            raise ConnectionRefusedError(f"{host} is not this machine")
        # The broker listens on IPv4 alone; clients try both.
        to = to if host == "::1" else (HOST, PORTS.get(port, port), *rest)
    return _connect(self, to)


socket.socket.connect = connect  # type: ignore[assignment,method-assign]


def named(variable: str) -> re.Pattern[str] | None:
    """What matches one of the names in an environment variable; None without such names."""
    names = os.environ.get(variable, "").split("\n")
    patterns = [re.escape(name).replace(r"\*", ".*") for name in names if name]
    return re.compile("|".join(patterns)) if patterns else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the tests that were asked for."""
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
