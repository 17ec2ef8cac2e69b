"""Query commands on a running broker: connections, octets, files, certificates."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from leveret.control.calls.client import ControlClient
from leveret.testing.processes import LeveretProcess

from .secured import Authority, SecuredLeveret


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LeveretProcess]:
    with LeveretProcess(tmp_path / "data") as process:
        yield process


@pytest.fixture
def control(broker: LeveretProcess) -> Iterator[ControlClient]:
    with ControlClient(str(broker.data_dir)) as client:
        yield client


def test_a_connection_is_what_its_client_knows(broker: LeveretProcess, control: ControlClient) -> None:
    before_ms = time.time_ns() // 1_000_000
    parameters = pika.URLParameters(broker.url)
    parameters.client_properties = {"connection_name": "me"}
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"x" * 10_000)
    assert channel.basic_get("q", auto_ack=True)[2] == b"x" * 10_000
    (view,) = control.call("list_connections")
    assert view["name"] == f"127.0.0.1:{view['peer_port']} -> 127.0.0.1:{broker.port}"
    assert (view["host"], view["port"], view["peer_host"]) == ("127.0.0.1", broker.port, "127.0.0.1")
    assert (view["user"], view["vhost"], view["auth_mechanism"]) == ("guest", "/", "PLAIN")
    assert (view["state"], view["channels"], view["user_provided_name"]) == ("running", 1, "me")
    assert before_ms <= view["connected_at"] <= time.time_ns() // 1_000_000
    assert 10_000 < view["recv_oct"] < 12_000
    assert 10_000 < view["send_oct"] < 12_000
    assert min(view["recv_cnt"], view["send_cnt"]) > 5
    assert control.call("get_connection", name=view["name"])["pid"] == view["pid"]
    (vhost,) = control.call("list_vhosts")
    assert vhost["recv_oct"] == view["recv_oct"]
    connection.close()
    assert control.call("list_connections") == []
    (vhost,) = control.call("list_vhosts")
    assert vhost["recv_oct"] > view["recv_oct"]
    overview = control.call("overview")
    assert overview["churn_rates"]["connection_created"] == 1
    assert overview["object_totals"]["connections"] == 0


def test_who_has_not_logged_in_is_no_connection_yet(broker: LeveretProcess, control: ControlClient) -> None:
    with socket.create_connection(("127.0.0.1", broker.port)) as stranger:
        stranger.sendall(b"AMQP\0\0\x09\x01")
        assert stranger.recv(1) == b"\x01"  # connection.start
        assert control.call("list_connections") == []
        (node,) = control.call("list_nodes")
        assert node["sockets_used"] == 2  # this connection and the listener


def test_what_a_client_does_not_read_is_pending(broker: LeveretProcess, control: ControlClient) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.queue_declare("q")
    for _ in range(32):
        channel.basic_publish("", "q", bytes(1 << 20))
    channel.basic_consume("q", lambda *_: None)  # and do not read the deliveries
    pending = 0
    while not pending:
        (view,) = control.call("list_connections")
        pending = view["send_pend"]
    found = control.call("get_queue", vhost="/", name="q")["message_bytes"]
    assert 32 << 20 <= found < 33 << 20  # part of it is in pages, of which only the size is known


def test_a_long_list_comes_whole(broker: LeveretProcess, control: ControlClient) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    names = [f"q{number:04}" for number in range(1500)]
    for name in names:
        channel.queue_declare(name)
    assert [queue["name"] for queue in control.call("list_queues")] == names
    assert [binding["routing_key"] for binding in control.call("list_bindings", columns=["routing_key"])] == names
    page = control.call("list_queues", page=2, page_size=500, name="Q0")
    assert (page["filtered_count"], page["page_count"], len(page["items"])) == (1000, 2, 500)


def test_a_node_tells_when_its_certificate_ends(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with SecuredLeveret(authority) as broker, ControlClient(str(broker.data_dir)) as control:
        fields = {"check": "certificate-expiration", "unit": "days"}
        # Authority's certificates expire after 30 days
        assert control.call("health_check", argument="29", **fields) == {"status": "ok"}
        failed = control.call("health_check", argument="31", **fields)
        assert failed["reason"] == "Certificates expiring"
        assert len(failed["expired"]) == 1
        assert control.call("health_check", check="protocol-listener", argument="amqps")["status"] == "ok"
