"""`leveret trace` on leveret and on RabbitMQ: the path of one message, with the firehose restored afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from leveret.cli.trace.firehose import TracedFirehose
from leveret.cli.trace.switch import CtlSwitch, HttpSwitch, SwitchError
from leveret.client import BlockingConnection, Properties
from leveret.testing.processes import LeveretProcess

from ..no_tls import NO_TLS
from ..shared import vhost
from ..waiting import until


class Traced:
    """A broker and the switch of its firehose; leveret (`is_ours`) also traces times and confirms."""

    def __init__(self, url: str, admin_url: str, is_ours: bool, data_dir: Path | None = None) -> None:
        self.data_dir = data_dir
        self.url = url
        self.admin_url = admin_url
        self.is_ours = is_ours
        self.vhost = vhost(url)

    def is_on(self) -> bool:
        return HttpSwitch(self.admin_url, self.vhost, "guest", "guest").is_on()


@pytest.fixture(scope="module", params=["leveret", pytest.param("rabbitmq", marks=pytest.mark.needs("rabbitmq"))])
def traced(request: pytest.FixtureRequest) -> Iterator[Traced]:
    if request.param == "leveret":
        with LeveretProcess(admin=True) as process:
            yield Traced(process.url, process.admin_url, True, process.data_dir)
        return
    yield Traced(request.getfixturevalue("rabbitmq"), request.getfixturevalue("rabbitmq_api"), False)


@contextmanager
def tracing(traced: Traced, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start a trace in a process of its own, and wait until it listens."""
    command = [sys.executable, "-m", "leveret.cli.main", "trace", "--url", traced.url]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [*command, "--admin-url", traced.admin_url, *arguments], env=environment, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        killer = threading.Timer(60, process.kill)
        killer.start()
        try:
            yield process
        finally:
            killer.cancel()
            process.kill()


def listens(traced: Traced, process: subprocess.Popen[str]) -> None:
    """Wait until it prints that it listens."""
    assert process.stderr is not None
    assert "Listening" in process.stderr.readline()


def publish(traced: Traced, message_id: str) -> None:
    """Publish to a queue where the message dies, and consume it from the queue that it is dead-lettered to."""
    with (
        BlockingConnection(traced.url, name="the publisher", reconnect=False) as connection,
        connection.channel() as channel,
    ):
        channel.declare_queue("traced-end", auto_delete=False, durable=True)
        arguments: dict[str, Any] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "traced-end"}
        channel.declare_queue("traced", durable=True, arguments=arguments)
        channel.confirm_select()
        properties = Properties(message_id=message_id, expiration="1", headers={"colour": "red"})
        channel.publish(b"on its way", "", "traced", properties=properties)
        channel.publish(b"another", "", "traced", properties=Properties(message_id="another", expiration="1"))
        channel.wait_for_confirms()
        channel.consume("traced-end", no_ack=True)
        for _ in range(2):
            assert channel.next_delivery(30) is not None


def test_the_way_of_one_message(traced: Traced) -> None:
    assert not traced.is_on()
    with tracing(traced, "--id", "wanted", "--json", "--once") as process:
        until(traced.is_on)
        publish(traced, "wanted")
        out, _ = process.communicate(timeout=50)
    steps = [json.loads(line) for line in out.splitlines()]
    assert {step["message_id"] for step in steps} == {"wanted"}
    expected = ["published", "confirmed", "dead-lettered", "delivered"]
    said = [step["step"] for step in steps]
    assert [word for word in said if word != "confirmed"] == [word for word in expected if word != "confirmed"]
    assert ("confirmed" in said) is traced.is_ours
    published, delivered = steps[0], steps[-1]
    assert published["queues"] == ["traced"]
    assert published["user"] == "guest"
    assert delivered["queue"] == "traced-end"
    assert delivered["after_ms"] >= 0
    died = next(step for step in steps if step["step"] == "dead-lettered")
    assert (died["queue"], died["reason"]) == ("traced", "expired")
    assert process.returncode == 0
    assert not traced.is_on()


def test_it_is_off_again_after_an_interruption(traced: Traced) -> None:
    with tracing(traced, "--header", "colour=red") as process:
        listens(traced, process)
        assert traced.is_on()
        publish(traced, "red one")
        assert process.stdout is not None
        assert "published" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    assert not traced.is_on()


def test_what_was_on_stays_on(traced: Traced) -> None:
    switch = HttpSwitch(traced.admin_url, traced.vhost, "guest", "guest")
    switch.turn(True)
    try:
        with tracing(traced, "--id", "nobody", "--timeout", "0.2") as process:
            _, told = process.communicate(timeout=50)
        assert process.returncode == 1
        assert "No messages matched." in told
        assert traced.is_on()
    finally:
        switch.turn(False)


def test_without_a_switch_it_asks_for_the_firehose(traced: Traced) -> None:
    command = [
        sys.executable,
        "-m",
        "leveret.cli.main",
        "trace",
        "--url",
        traced.url,
        "--admin-url",
        "http://127.0.0.1:1",
    ]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, text=True, capture_output=True, timeout=50, check=False)
    assert done.returncode == 3
    assert "no answer from http://127.0.0.1:1" in done.stderr


def test_without_a_switch_it_is_tried_out(traced: Traced) -> None:
    switch = HttpSwitch(traced.admin_url, traced.vhost, "guest", "guest")
    with BlockingConnection(traced.url, reconnect=False) as connection:
        with pytest.raises(SwitchError, match="the firehose is off"), TracedFirehose(connection, None):
            pass
        switch.turn(True)
        try:
            with TracedFirehose(connection, None) as firehose:
                assert not firehose.has_turned
        finally:
            switch.turn(False)


def test_the_control_socket_turns_it_too(traced: Traced) -> None:
    if traced.data_dir is None:
        assert not traced.is_ours  # RabbitMQ has none
        return
    switch = CtlSwitch(str(traced.data_dir), traced.vhost)
    with BlockingConnection(traced.url, reconnect=False) as connection:
        with TracedFirehose(connection, switch) as firehose:
            assert firehose.has_turned
            assert switch.is_on()
        assert not switch.is_on()
    with pytest.raises(SwitchError, match="no broker is running"):
        CtlSwitch(str(traced.data_dir / "nowhere"), traced.vhost).is_on()


def test_a_switch_leaves_the_rest_of_a_virtual_host_alone(traced: Traced) -> None:
    api = httpx.Client(base_url=f"{traced.admin_url}/api/", auth=("guest", "guest"), timeout=60, verify=NO_TLS)
    with api:
        api.put("vhosts/kept", json={"description": "the shop", "tags": "a,b"}).raise_for_status()
        HttpSwitch(traced.admin_url, "kept", "guest", "guest").turn(True)
        found = api.get("vhosts/kept").json()
        assert (found["tracing"], found["description"], found["tags"]) == (True, "the shop", ["a", "b"])
        api.delete("vhosts/kept").raise_for_status()
