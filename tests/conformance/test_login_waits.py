"""Logins that wait, seen from outside: addresses that failed often, and passwords whose check takes long."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from leveret.broker.attempts import FREE, WAIT_US_MAX
from leveret.broker.users import ARGON2ID
from leveret.control.refusal import NOT_AUTHORISED, Refused
from leveret.testing.processes import LeveretProcess

from ..waiting import until
from .administration import ControlAdministration
from .raw import RawClient

HOST = "127.0.0.9"  # all of 127.0.0.0/8 is this machine


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LeveretProcess]:
    """New passwords are hashed by Argon2id."""
    config = tmp_path / "leveret.toml"
    config.write_text('password_hashing = "argon2id"\n')
    with LeveretProcess(arguments=["--config", str(config)]) as process:
        yield process


@pytest.fixture
def administration(broker: LeveretProcess) -> ControlAdministration:
    return ControlAdministration(str(broker.data_dir))


class From(RawClient):
    """A client from another address of this machine."""

    def __init__(self, url: str, address: str = HOST) -> None:
        super().__init__(url)
        port = self.socket.getpeername()[1]
        self.socket.close()
        self.socket = socket.create_connection(("127.0.0.1", port), 10, source_address=(address, 0))


def answer_to(client: RawClient) -> str:
    with client:
        client.start()
        return client.read(timeout_s=2 * WAIT_US_MAX / 1e6).name


def test_who_failed_often_waits_and_others_do_not(broker: LeveretProcess) -> None:
    wrong = broker.url.replace("guest:guest", "guest:wrong")
    for _ in range(FREE + 1):
        assert answer_to(From(wrong)) == "connection.close"
    with From(broker.url) as waiter, From(broker.url) as second:
        begun = time.monotonic()
        for client in (waiter, second):
            client.start()
        assert answer_to(From(broker.url, "127.0.0.10")) == "connection.tune"  # while they wait
        waiter.socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            waiter.socket.recv(1)
        waiter.socket.setblocking(True)
        assert waiter.read().name == "connection.tune"
        waited_s = time.monotonic() - begun
        assert second.read().name == "connection.tune"
        assert time.monotonic() - begun > waited_s > 0.1
    assert answer_to(From(broker.url)) == "connection.tune"


def test_who_goes_while_waiting_is_forgotten(broker: LeveretProcess) -> None:
    wrong = broker.url.replace("guest:guest", "guest:wrong")
    for _ in range(FREE + 1):
        assert answer_to(From(wrong)) == "connection.close"
    for _ in range(3):
        with From(broker.url) as client:
            client.start()
    assert answer_to(From(broker.url)) == "connection.tune"


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


def test_deliveries_go_on_while_passwords_are_looked_at(
    broker: LeveretProcess, administration: ControlAdministration
) -> None:
    administration.call("add_user", name="slow", password="right")
    waiting = [RawClient(broker.url.replace("guest:guest", "slow:wrong")) for _ in range(5)]
    with RawClient.open(broker.url) as client:
        for each in waiting:
            each.start()
        client.call("queue.declare", queue="q", exclusive=True)  # answered before the last of them
        waiting[-1].socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            waiting[-1].socket.recv(1)
        waiting[-1].socket.setblocking(True)
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
            answer = httpx.get(f"{process.admin_url}/api/whoami", auth=("guest", password))
            assert answer.status_code == status
        [counted] = administration.call("list_auth_attempts")
        assert (counted["auth_attempts_failed"], counted["auth_attempts_succeeded"]) == (1, 1)
