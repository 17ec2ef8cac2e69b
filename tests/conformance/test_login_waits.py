"""Logins that have to wait, as clients see them: addresses that failed often, and passwords that take long to check.

Tests that need logins to wait use a broker with a virtual clock, or keep the thread that checks passwords busy.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from leveret.broker.access.login_throttle import FREE, STEP_US
from leveret.broker.access.users import ARGON2ID
from leveret.control.refusal import NOT_AUTHORISED, Refused
from leveret.testing import LiveBroker, VirtualClock
from leveret.testing import broker as in_this_process
from leveret.testing.processes import LeveretProcess

from ..no_tls import NO_TLS
from ..waiting import until
from .administration import ControlAdministration
from .raw import RawClient

HOST = "127.0.0.9"  # all of 127.0.0.0/8 is this machine


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LeveretProcess]:
    """A broker that hashes new passwords by Argon2id."""
    config = tmp_path / "leveret.toml"
    config.write_text('password_hashing = "argon2id"\n')
    with LeveretProcess(arguments=["--config", str(config)]) as process:
        yield process


@pytest.fixture
def administration(broker: LeveretProcess) -> ControlAdministration:
    return ControlAdministration(str(broker.data_dir))


class From(RawClient):
    """A client that connects from another address of this machine."""

    def __init__(self, url: str, address: str = HOST) -> None:
        super().__init__(url)
        port = self.socket.getpeername()[1]
        self.socket.close()
        self.socket = socket.create_connection(("127.0.0.1", port), 10, source_address=(address, 0))


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def still(clock: VirtualClock) -> Iterator[LiveBroker]:
    """A broker with a virtual clock, where HOST has failed so often that it has to wait."""
    with in_this_process(clock=clock) as running:
        for _ in range(FREE):
            assert answer_to(From(running.url_for("guest", "wrong"))) == "connection.close"
        yield running


def answer_to(client: RawClient) -> str:
    with client:
        client.start()
        return client.read().name


def is_silent(client: RawClient) -> bool:
    """Return whether there is nothing to read and the connection is open."""
    client.socket.setblocking(False)
    try:
        return not client.socket.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    finally:
        client.socket.setblocking(True)


def begin(broker: LiveBroker, clients: list[From]) -> None:
    """Start logins that have to wait."""
    waiting = broker._fixture.living().server.logins._waiting
    for number, client in enumerate(clients, 1):
        client.start()
        until(lambda: len(waiting) == number)  # noqa: B023


def test_who_failed_often_waits_and_others_do_not(still: LiveBroker, clock: VirtualClock) -> None:
    step = timedelta(microseconds=STEP_US)
    with From(still.url) as waiter, From(still.url) as second:
        begin(still, [waiter, second])
        assert clock.next_due() == clock.now() + step
        assert answer_to(From(still.url, "127.0.0.10")) == "connection.tune"  # while the others wait
        clock.advance(step - timedelta(microseconds=1))
        assert is_silent(waiter)
        clock.advance(timedelta(microseconds=1))
        assert waiter.read().name == "connection.tune"
        assert is_silent(second)
        clock.advance(step)
        assert second.read().name == "connection.tune"
    assert answer_to(From(still.url)) == "connection.tune"


def test_who_goes_while_waiting_is_forgotten(still: LiveBroker, clock: VirtualClock) -> None:
    clients = [From(still.url) for _ in range(3)]
    begin(still, clients)
    for client in clients:
        client.socket.close()
    until(lambda: not still.connections())
    clock.advance(seconds=1)
    assert clock.next_due() is None
    assert answer_to(From(still.url)) == "connection.tune"


def test_a_name_cannot_forge_a_line_of_the_log(broker: LeveretProcess) -> None:
    forged = "2026-01-01 INFO all is well"
    with RawClient(broker.url) as client:
        client.start(response=f"\0nobody\r\n{forged}\0wrong")
        assert client.read().name == "connection.close"
    until(lambda: "nobody\\r\\n" in broker.output)
    assert not any(line.startswith(forged) for line in broker.output.splitlines())


def test_slow_passwords_let_in_who_knows_them(
    broker: LeveretProcess, administration: ControlAdministration
) -> None:
    administration.call("add_user", name="slow", password="first")
    administration.call("set_permissions", user="slow", vhost="/", configure=".*", write=".*", read=".*")
    url = broker.url.replace("guest:guest", "slow:{}")
    for password, answer in (("first", "connection.tune"), ("second", "connection.close")):
        assert answer_to(RawClient(url.format(password))) == answer
    administration.call("change_password", name="slow", password="second")
    for password, answer in (("first", "connection.close"), ("second", "connection.tune")):
        assert answer_to(RawClient(url.format(password))) == answer
    algorithms = {user["name"]: user["hashing_algorithm"] for user in administration.call("list_users")}
    assert algorithms["slow"] == ARGON2ID != algorithms["guest"]
    assert administration.call("authenticate", name="slow", password="second") == {"name": "slow", "tags": []}
    with RawClient.open(url.format("second")) as client:
        client.call("queue.declare", queue="q")
        client.call("queue.delete", queue="q")


def test_deliveries_go_on_while_passwords_are_looked_at() -> None:
    is_free = threading.Event()
    with in_this_process(password_hashing=ARGON2ID) as running:
        running.ctl("add_user", name="slow", password="right")
        logins = running._fixture.living().server.logins
        logins._thread.submit(is_free.wait)  # as if checking a password took very long
        waiting = [RawClient(running.url_for("slow", "wrong")) for _ in range(2)]
        with RawClient.open(running.url) as client:
            for each in waiting:
                each.start()
            client.call("queue.declare", queue="q", exclusive=True)
            client.publish(b"x", routing_key="q")
            assert client.call("basic.get", queue="q").body == b"x"
            assert all(map(is_silent, waiting))
            is_free.set()
            for each in waiting:
                assert each.read().name == "connection.close"
                each.socket.close()


@pytest.mark.parametrize("user", ["guest", "slow", "nobody"])
def test_attempts_by_other_protocols_count_too(
    broker: LeveretProcess, administration: ControlAdministration, user: str
) -> None:
    administration.call("add_user", name="slow", password="guest")
    with pytest.raises(Refused) as refused:
        administration.call("authenticate", name=user, password="wrong", address=HOST)
    assert refused.value.kind == NOT_AUTHORISED
    if user == "guest":
        with pytest.raises(Refused, match="only log in via localhost"):
            administration.call("authenticate", name=user, password="guest", address="10.0.0.1")
    assert answer_to(From(broker.url)) == "connection.tune"
    counted = {each["protocol"]: each for each in administration.call("list_auth_attempts")}
    assert counted["http"]["auth_attempts_failed"] == (2 if user == "guest" else 1)
    assert counted["amqp091"] == {
        "protocol": "amqp091", "auth_attempts": 1, "auth_attempts_failed": 0, "auth_attempts_succeeded": 1}
    administration.call("reset_auth_attempts")
    assert administration.call("list_auth_attempts") == administration.call("list_auth_attempts", by_source=True) == []


def test_failed_logins_of_the_http_api_are_counted() -> None:
    with LeveretProcess(admin=True) as process:
        administration = ControlAdministration(str(process.data_dir))
        for password, status in (("wrong", 401), ("guest", 200)):
            answer = httpx.get(f"{process.admin_url}/api/whoami", auth=("guest", password), timeout=30, verify=NO_TLS)
            assert answer.status_code == status
        [counted] = administration.call("list_auth_attempts")
        assert (counted["auth_attempts_failed"], counted["auth_attempts_succeeded"]) == (1, 1)
