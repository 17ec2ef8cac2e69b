"""Delayed messages of real clients, as operators see and change them: `leveret ctl` and /api/delayed."""

from __future__ import annotations

import csv
import json
import re
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pika
import pytest
from click.testing import CliRunner, Result

from leveret.cli.ctl.group import command
from leveret.client.blocking import BlockingConnection
from leveret.client.blocking_channel import BlockingChannel
from leveret.client.protocol.model import Delivery
from leveret.control.calls.client import ControlClient
from leveret.delay import MILLISECONDS, NSERVICEBUS, NSERVICEBUS_V2
from leveret.delay.named import DELAY_HEADER
from leveret.testing.processes import LeveretProcess
from leveret.wire.properties import Properties

from ..no_tls import NO_TLS

LAYOUTS = (NSERVICEBUS, NSERVICEBUS_V2, MILLISECONDS)
HOUR = 3600
MANY = 20_000
GUEST = ("guest", "guest")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeveretProcess]:
    with LeveretProcess(tmp_path_factory.mktemp("data"), admin=True) as process:
        with BlockingConnection(process.url, reconnect=False) as connection:
            channel = connection.channel()
            for layout in LAYOUTS:
                layout.declare_blocking(channel)
            for name in ("orders", "bills"):
                channel.declare_queue(name)
                for layout in LAYOUTS:
                    layout.bind_destination_blocking(channel, name)
        yield process


@pytest.fixture
def connection(broker: LeveretProcess) -> Iterator[BlockingConnection]:
    """A connection; nothing is pending before and after the test."""
    with BlockingConnection(broker.url, reconnect=False) as connection:
        yield connection
    ctl(broker.data_dir, "cancel_delayed", "--all")


def send(connection: BlockingConnection) -> None:
    """Send three messages to orders and two to bills, due in hours."""
    channel = connection.channel()
    channel.confirm_select()
    for hours in (1, 2, 3):
        properties = Properties(message_id=f"order-{hours}", headers={"hours": hours})
        NSERVICEBUS.publish_blocking(channel, b"order", "orders", hours * HOUR, properties)
    NSERVICEBUS_V2.publish_blocking(channel, b"bill", "bills", 5 * HOUR, Properties(message_id="bill-5"))
    MILLISECONDS.publish_blocking(channel, b"bill", "bills", 4 * HOUR, Properties(message_id="bill-4"))
    channel.wait_for_confirms()


def arrival(channel: BlockingChannel) -> Delivery:
    found = channel.next_delivery(timeout_s=60)
    assert found is not None
    return found


def run(data_dir: Path, *arguments: str) -> Result:
    environment = {"LEVERET_DATA_DIR": str(data_dir)}
    return CliRunner().invoke(command, list(arguments), env=environment, prog_name="ctl")


def ctl(data_dir: Path, *arguments: str) -> str:
    result = run(data_dir, "-q", *arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def about(text: str) -> datetime:
    """Round a displayed time to the hour."""
    at = datetime.fromisoformat(text) + timedelta(minutes=30)
    return at.replace(minute=0, second=0, microsecond=0)


def hours(count: int) -> datetime:
    return about((datetime.now().astimezone() + timedelta(hours=count)).isoformat())


def test_a_row_for_each_destination(broker: LeveretProcess, connection: BlockingConnection) -> None:
    send(connection)
    rows = json.loads(ctl(broker.data_dir, "delayed", "--json"))
    assert [(row["layout"], row["destination"], row["messages"], row["parked"]) for row in rows] == [
        ("nsb", "orders", 3, 0), ("nsb.ms", "bills", 1, 0), ("nsb.v2", "bills", 1, 0),
    ]  # fmt: skip
    assert [abs(about(rows[0][name]) - hours(count)) <= timedelta(hours=1) for name, count in
            (("next_due", 1), ("last_due", 3))] == [True, True]  # fmt: skip
    table = ctl(broker.data_dir, "delayed", "--destination", "orders").splitlines()
    assert table[0].split("\t") == ["layout", "destination", "messages", "next_due", "last_due", "parked"]
    assert table[1].split("\t")[:3] == ["nsb", "orders", "3"]
    assert [row[1] for row in csv.reader(ctl(broker.data_dir, "delayed", "--formatter", "csv").splitlines())] == [
        "destination", "orders", "bills", "bills",
    ]  # fmt: skip
    assert json.loads(ctl(broker.data_dir, "delayed", "--due-before", "+150m", "--json"))[0]["messages"] == 2
    assert json.loads(ctl(broker.data_dir, "delayed", "--due-after", "+210m", "--json"))[0]["destination"] == "bills"


def test_levels_and_single_messages(broker: LeveretProcess, connection: BlockingConnection) -> None:
    send(connection)
    levels = json.loads(ctl(broker.data_dir, "delayed", "--levels", "--json"))
    assert len(levels) == 3 * 28
    pending = {row["name"]: row["messages"] for row in levels if row["messages"]}
    assert pending == {
        "nsb.delay-level-11": 1, "nsb.delay-level-12": 1, "nsb.delay-level-13": 1,
        "nsb.v2.delay-level-14": 1, "nsb.ms.delay-level-23": 1,
    }  # fmt: skip
    messages = json.loads(ctl(broker.data_dir, "delayed", "--messages", "--limit", "4", "--json"))
    assert [each["message_id"] for each in messages] == ["order-1", "order-2", "order-3", "bill-4"]
    assert {each["state"] for each in messages} == {"pending"}
    assert re.fullmatch(r"1:00:00|0:5\d:\d\d", messages[0]["remaining"])
    (found,) = json.loads(ctl(broker.data_dir, "delayed", "--header", "hours=2", "--json"))
    assert (found["message_id"], found["destination"], found["message_bytes"]) == ("order-2", "orders", 5)
    assert ctl(broker.data_dir, "delayed", "--parked") == ""


@pytest.mark.parametrize(
    "arguments",
    [("delayed", "--levels", "--messages"), ("delayed", "--header", "x"), ("delayed", "--due-after", "soon"),
     ("cancel_delayed",), ("retime_delayed", "--all", "--in", "1y"), ("retime_delayed", "--all"),
     ("delayed", "--messages", "--limit", "0")],
)  # fmt: skip
def test_what_is_wrong_is_said(broker: LeveretProcess, arguments: tuple[str, ...]) -> None:
    result = run(broker.data_dir, *arguments)
    assert result.exit_code in (64, 65, 69)
    assert "Error" in result.stderr
    assert "Traceback" not in result.output


def test_cancel_and_retime(broker: LeveretProcess, connection: BlockingConnection) -> None:
    send(connection)
    said = ctl(broker.data_dir, "cancel_delayed", "--destination", "bills", "--dry-run")
    assert said == "2 messages would be cancelled\n"
    assert ctl(broker.data_dir, "cancel_delayed", "--destination", "bills") == "2 messages cancelled\n"
    assert ctl(broker.data_dir, "cancel_delayed", "--message-id", "order-1") == "1 messages cancelled\n"
    said = ctl(broker.data_dir, "retime_delayed", "--header", "hours=3", "--at", "+4h")
    assert said.startswith("1 messages are due at ")
    (row,) = json.loads(ctl(broker.data_dir, "delayed", "--json"))
    assert (row["messages"], row["last_due"]) == (2, said.split(" due at ")[1].strip())
    channel = connection.channel()
    channel.consume("orders", no_ack=True)
    ctl(broker.data_dir, "retime_delayed", "--all", "--in", "0")
    arrived = [arrival(channel) for _ in range(2)]
    assert {each.properties.message_id for each in arrived} == {"order-2", "order-3"}
    assert {each.body for each in arrived} == {b"order"}
    headers = [each.properties.headers or {} for each in arrived]
    assert all("x-death" not in each and each[DELAY_HEADER] < HOUR for each in headers)
    assert ctl(broker.data_dir, "delayed") == ""


def test_a_message_that_is_brought_forward_arrives_then_and_not_before(
    broker: LeveretProcess, connection: BlockingConnection
) -> None:
    channel = connection.channel()
    channel.consume("orders", no_ack=True)
    channel.confirm_select()
    MILLISECONDS.publish_blocking(channel, b"x", "orders", HOUR)
    channel.wait_for_confirms()
    at = datetime.now().astimezone() + timedelta(milliseconds=700)
    ctl(broker.data_dir, "retime_delayed", "--all", "--at", at.isoformat())
    assert arrival(channel).body == b"x"
    assert datetime.now().astimezone() >= at


def api(broker: LeveretProcess, method: str, path: str, auth: tuple[str, str] = GUEST, **more: Any) -> httpx.Response:
    return httpx.request(method, f"{broker.admin_url}/api/delayed{path}", auth=auth, timeout=30, verify=NO_TLS, **more)


def test_http(broker: LeveretProcess, connection: BlockingConnection) -> None:
    send(connection)
    rows = api(broker, "GET", "").json()
    assert [(row["vhost"], row["layout"], row["destination"], row["messages"]) for row in rows] == [
        ("/", "nsb", "orders", 3), ("/", "nsb.ms", "bills", 1), ("/", "nsb.v2", "bills", 1),
    ]  # fmt: skip
    page = api(broker, "GET", "/%2F?page=1&page_size=2&sort=messages&sort_reverse=true&name=s").json()
    assert (page["filtered_count"], page["items"][0]["destination"]) == (3, "orders")
    assert len(api(broker, "GET", "/%2F/levels").json()) == 3 * 28
    (found,) = api(broker, "GET", "/%2F/messages?message_id=bill-5").json()
    assert (found["level"], found["routing_key"][-5:], found["state"]) == (14, "bills", "pending")
    moved = api(broker, "PUT", "/%2F/messages?message_id=bill-5", json={"at_ms": found["due_ms"] + 1}).json()
    assert moved == {"message_count": 1, "due_ms": moved["due_ms"]}
    assert found["due_ms"] < moved["due_ms"] <= found["due_ms"] + 1001
    assert api(broker, "DELETE", "/%2F/messages?layout=nsb").json() == {"message_count": 3}
    assert api(broker, "DELETE", "/%2F/messages").status_code == 400
    assert api(broker, "GET", "/none/messages").status_code == 404


def test_http_permissions(broker: LeveretProcess, connection: BlockingConnection) -> None:
    send(connection)
    plain = ("plain", "secret")
    for arguments in (("add_user", *plain), ("set_user_tags", "plain", "management")):
        ctl(broker.data_dir, *arguments)
    assert api(broker, "GET", "", plain).json() == []
    assert api(broker, "GET", "/%2F/messages", plain).status_code == 401
    ctl(broker.data_dir, "set_permissions", "plain", "^$", "^$", "^nsb.delay-level-1[12]$")
    assert len(api(broker, "GET", "", plain).json()) == 3
    refused = api(broker, "DELETE", "/%2F/messages?destination=orders", plain)
    assert (refused.status_code, refused.json()["error"]) == (401, "not_authorised")
    assert api(broker, "GET", "/%2F", plain).json()[0]["messages"] == 3
    assert api(broker, "DELETE", "/%2F/messages?header=hours=2", plain).json() == {"message_count": 1}
    assert api(broker, "PUT", "/%2F/messages?header=hours=1", plain, json={"in_ms": 1}).status_code == 401


def test_changes_are_audited(broker: LeveretProcess, connection: BlockingConnection) -> None:
    send(connection)
    ctl(broker.data_dir, "cancel_delayed", "--message-id", "order-1")
    said = broker.said('"command": "cancel_delayed"')
    assert '"outcome": "ok"' in said


def test_what_a_delayed_exchange_holds(broker: LeveretProcess, connection: BlockingConnection) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as client:
        channel = client.channel()
        arguments = {"x-delayed-type": "direct"}
        channel.exchange_declare("later", "x-delayed-message", durable=True, arguments=arguments)
        channel.queue_bind("orders", "later", "key")
        properties = pika.BasicProperties(message_id="held", delivery_mode=2, headers={"x-delay": HOUR * 1000})
        channel.basic_publish("later", "key", b"held", properties)
        channel.queue_declare("orders", passive=True)  # its answer shows that the message has arrived
        (row,) = json.loads(ctl(broker.data_dir, "delayed", "--json"))
        assert (row["layout"], row["destination"], row["messages"]) == ("later", "key", 1)
        ctl(broker.data_dir, "retime_delayed", "--message-id", "held", "--in", "0")
        for _, _, body in channel.consume("orders", auto_ack=True):
            assert body == b"held"
            break


def test_others_have_their_turn_while_many_are_listed(broker: LeveretProcess, connection: BlockingConnection) -> None:
    channel = connection.channel()
    channel.confirm_select()
    for number in range(MANY):
        NSERVICEBUS.publish_blocking(channel, b"x", ("orders", "bills")[number % 2], HOUR + number)
    channel.wait_for_confirms()
    channel.declare_queue("echo")
    channel.consume("echo", no_ack=True)
    answers: list[Any] = []

    def ask() -> None:
        with ControlClient(str(broker.data_dir), timeout_s=300) as control:
            answers.append(control.call("list_delayed"))

    asking = threading.Thread(target=ask)
    asking.start()
    trips = 0
    while asking.is_alive():
        channel.publish(b"echo", routing_key="echo")
        assert arrival(channel).body == b"echo"
        trips += 1
    asking.join()
    assert {row["destination"]: row["messages"] for row in answers[0]} == {"orders": MANY // 2, "bills": MANY // 2}
    # if the list were made in one go, there would be one trip before it, one after it, and one that waited for it
    assert trips > 3
